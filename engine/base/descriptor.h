// An open file descriptor that is closed when it goes out of scope.
#ifndef MEGATRAIN_ENGINE_BASE_DESCRIPTOR_H_
#define MEGATRAIN_ENGINE_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace megatrain {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DESCRIPTOR_H_
