#include "engine/config/yaml_tree.h"

#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "simdjson.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace megatrain {
namespace {

// Builds the tree from the parser's events. After the first error further events are ignored; the
// text is short, so running to its end costs nothing.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& name) : name_(name) {}

  absl::Status status() const { return status_; }
  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    YamlNode node;
    node.kind = YamlNode::Kind::kNull;
    Add(mark, std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Fail(mark, "aliases (*name) are not supported; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    if (!CheckTag(mark, tag)) return;
    if (value.find('\0') != std::string::npos) {  // as "\0" writes it
      Fail(mark, "a text may not have a zero byte");
      return;
    }
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.quoted = tag == "!";
    if (!node.quoted && (value == "~" || value == "null")) node.kind = YamlNode::Kind::kNull;
    node.scalar = value;
    Add(mark, std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, YamlNode::Kind::kSequence);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  // An open container and, in a map, the key whose value is awaited.
  struct Frame {
    YamlNode node;
    bool has_key = false;
    std::string key;
  };

  std::string Where(const YAML::Mark& mark) const {
    return absl::StrCat(name_, ":", mark.line + 1);
  }

  void Fail(const YAML::Mark& mark, const std::string& what) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(Where(mark), ": ", what));
    }
  }

  bool CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return true;
    Fail(mark, absl::StrCat("the tag ", tag, " is not supported; leave it out"));
    return false;
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
    if (!CheckTag(mark, tag) || !status_.ok()) return;
    if (open_.size() >= kYamlDepthMax) {
      return Fail(mark, absl::StrCat("nested deeper than ", kYamlDepthMax, " levels"));
    }
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap && !open_.back().has_key) {
      return Fail(mark, "a key must be a word, not a list or map");
    }
    Frame frame;
    frame.node.kind = kind;
    frame.node.where = Where(mark);
    open_.push_back(std::move(frame));
  }

  void Close() {
    if (!status_.ok()) return;
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Place(std::move(node));
  }

  void Add(const YAML::Mark& mark, YamlNode node) {
    if (!status_.ok()) return;
    if (++nodes_ > kYamlNodesMax) {
      return Fail(mark, absl::StrCat("more than ", kYamlNodesMax, " values"));
    }
    node.where = Where(mark);
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap && !open_.back().has_key) {
      if (node.kind != YamlNode::Kind::kScalar) return Fail(mark, "a key is missing before ':'");
      if (const YamlNode* first = open_.back().node.Find(node.scalar)) {
        return Fail(mark, absl::StrCat("the key ", node.scalar, " is given twice (first at ",
                                       first->where, ")"));
      }
      if (open_.back().node.entries.size() >= kYamlKeysOfMapMax) {
        return Fail(mark, absl::StrCat("more than ", kYamlKeysOfMapMax, " keys in one map"));
      }
      open_.back().key = std::move(node.scalar);
      open_.back().has_key = true;
      return;
    }
    Place(std::move(node));
  }

  void Place(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = open_.back();
    if (frame.node.kind == YamlNode::Kind::kSequence) {
      frame.node.items.push_back(std::move(node));
    } else {
      frame.node.entries.emplace_back(std::move(frame.key), std::move(node));
      frame.has_key = false;
    }
  }

  const std::string& name_;
  absl::Status status_;
  std::vector<Frame> open_;
  YamlNode root_;
  size_t nodes_ = 0;
};

}  // namespace

const YamlNode* YamlNode::Find(std::string_view key) const {
  for (const auto& [name, node] : entries) {
    if (name == key) return &node;
  }
  return nullptr;
}

YamlNode* YamlNode::Find(std::string_view key) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->Find(key));
}

std::string YamlNode::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kSequence:
      return "a list";
    case Kind::kMap:
      return "a map";
    case Kind::kScalar:
      break;
  }
  // Long values (a document pasted by mistake) are cut for the message.
  const std::string shown = scalar.size() > 80 ? absl::StrCat(scalar.substr(0, 77), "...") : scalar;
  return quoted ? absl::StrCat("the text \"", shown, "\"") : shown;
}

absl::StatusOr<YamlNode> ParseYaml(std::string_view text, const std::string& name) {
  if (text.size() > kYamlBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", text.size(), " bytes long; at most ", kYamlBytesMax, " are read"));
  }
  if (text.find('\0') != std::string_view::npos ||
      !simdjson::validate_utf8(text.data(), text.size())) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not UTF-8 text"));
  }
  TreeBuilder builder(name);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    MT_RETURN_IF_ERROR(builder.status());
    TreeBuilder second(name);
    if (parser.HandleNextDocument(second)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": holds more than one YAML document (a second ---)"));
    }
  } catch (const YAML::Exception& error) {
    MT_RETURN_IF_ERROR(builder.status());
    return absl::InvalidArgumentError(
        error.mark.is_null() ? absl::StrCat(name, ": ", error.msg)
                             : absl::StrCat(name, ":", error.mark.line + 1, ": ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", error.what()));
  }
  return builder.TakeRoot();
}

}  // namespace megatrain
