#include "server/transport/health_service.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "megatrain/v1/error_reason.pb.h"
#include "server/jobs/error_reason.h"
#include "server/transport/error_status.h"
#include "server/transport/open_authenticator.h"
#include "server/transport/utf8.h"

namespace megatrain {
namespace {

using grpc::health::v1::HealthCheckResponse;

ServiceContext OpenToAll(ServiceContext context) {
  static const OpenAuthenticator everyone;
  context.authenticator = &everyone;
  return context;
}

// Looks once a second: states change twice in a daemon's life.
class HealthSource : public StreamSource<HealthCheckResponse> {
 public:
  // Counted in `watches` while it lives.
  HealthSource(const HealthService* health, std::string service, std::atomic<int>* watches)
      : health_(health), service_(std::move(service)), watches_(watches) {}
  ~HealthSource() override { --*watches_; }

  absl::StatusOr<StreamNext> Next(HealthCheckResponse* message) override {
    const std::optional<bool> serving = health_->Serving(service_);
    const auto status = !serving.has_value() ? HealthCheckResponse::SERVICE_UNKNOWN
                        : *serving           ? HealthCheckResponse::SERVING
                                             : HealthCheckResponse::NOT_SERVING;
    if (told_ == status) return StreamNext::kNothing;
    told_ = status;
    message->set_status(status);
    return StreamNext::kMessage;
  }
  int64_t next_sequence() const override { return 0; }
  std::chrono::milliseconds poll_interval() const override { return std::chrono::seconds(1); }

 private:
  const HealthService* const health_;
  const std::string service_;
  std::atomic<int>* const watches_;
  std::optional<HealthCheckResponse::ServingStatus> told_;
};

absl::Status CheckName(const std::string& service) {
  if (service.size() <= HealthService::kNameBytesMax) return absl::OkStatus();
  return InvalidField("service", absl::StrCat("expects at most ", HealthService::kNameBytesMax,
                                              " bytes, got ", service.size()));
}

}  // namespace

HealthService::HealthService(const ServiceContext& context) : RpcService(OpenToAll(context)) {
  using Api = grpc::health::v1::Health::AsyncService;
  Unary("Check", &Api::RequestCheck, AnswerOn::kLoop, &HealthService::Check);
  Stream("Watch", &Api::RequestWatch, AnswerOn::kLoop, &HealthService::Watch);
}

void HealthService::SetServing(const std::string& service, bool serving) {
  MutexLock lock(&mutex_);
  serving_[service] = serving;
}

void HealthService::SetNoneServing() {
  MutexLock lock(&mutex_);
  for (auto& [service, serving] : serving_) serving = false;
}

std::optional<bool> HealthService::Serving(const std::string& service) const {
  MutexLock lock(&mutex_);
  const auto found = serving_.find(service);
  if (found == serving_.end()) return std::nullopt;
  return found->second;
}

absl::Status HealthService::Check(const Caller&, const Request& request, Response* response) {
  MT_RETURN_IF_ERROR(CheckName(request.service()));
  const std::optional<bool> serving = Serving(request.service());
  if (!serving.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("there is no service \"", ValidUtf8(request.service()), "\""));
  }
  response->set_status(*serving ? Response::SERVING : Response::NOT_SERVING);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StreamSource<HealthCheckResponse>>> HealthService::Watch(
    const Caller&, const Request& request, std::function<void()>) {
  MT_RETURN_IF_ERROR(CheckName(request.service()));
  if (++watches_ > kWatchesMax) {
    --watches_;
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "there are ", kWatchesMax, " watches of health, as many as may be")),
                      v1::ErrorReason_Name(v1::LIMIT_REACHED),
                      {{"limit", "health_watches"}, {"value", absl::StrCat(kWatchesMax)}});
  }
  return std::make_unique<HealthSource>(this, request.service(), &watches_);
}

}  // namespace megatrain
