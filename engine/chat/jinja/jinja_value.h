// JinjaValue is a value that a Jinja program computes with. The values are Python's, because chat
// templates are written for Python.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_JINJA_VALUE_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace megatrain {

namespace jinja {
struct Missing;
struct Text;
struct Sequence;
struct Dict;
class Object;
}  // namespace jinja

// One value. A copy shares the text, items or entries with the original, so it costs no more than a
// reference count. Text, lists and dicts do not change after they are made: the sandbox of
// transformers refuses all of Python's methods that would change them. Objects such as a namespace
// can change, and copies are the same object, as in Python.
//
// Thread safety: values made by the functions below may be read and copied from several threads.
class JinjaValue {
 public:
  enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kSequence, kDict, kObject };
  using List = std::vector<JinjaValue>;
  using Entries = std::vector<std::pair<std::string, JinjaValue>>;

  // Makers.
  //
  // The undefined value. It prints as "", is false, and has no attributes.
  JinjaValue() = default;

  static JinjaValue None();
  static JinjaValue Bool(bool value);
  // Makes an int. Python's int is unbounded and this one is not, so a reader must refuse a number
  // beyond int64.
  static JinjaValue Int(int64_t value);
  static JinjaValue Float(double value);
  // Makes a str. REQUIRES: `text` is well-formed UTF-8.
  static JinjaValue String(std::string text);
  // Makes a list. REQUIRES, here and for a dict: what it holds is nested fewer than kDepthMax
  // levels deep.
  static JinjaValue MakeList(List items);
  // Makes a dict in the order of `entries`. If several have the same key, the last one gives the
  // value and the first one the place, as in Python. REQUIRES: the keys are well-formed UTF-8.
  static JinjaValue MakeDict(Entries entries);

  // The most levels of lists and dicts within one another. A program that nests deeper fails.
  static constexpr int kDepthMax = 200;

  // Questions.
  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_dict() const { return kind() == Kind::kDict; }
  // Returns true for a list, but not for a tuple, a range or a view of a dict.
  bool is_list() const;

  // Returns true for None, the undefined value, "", and a sequence or dict without items.
  bool is_empty() const;

  // Return the value. REQUIRES: it is of exactly that kind.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return std::get<int64_t>(data_); }
  double as_float() const { return std::get<double>(data_); }
  // Valid while a copy of the value lives.
  std::string_view as_string() const;

  // The rest is for the interpreter. The alternatives of Data are in the order of Kind.
  using Data =
      std::variant<std::shared_ptr<const jinja::Missing>, std::nullptr_t, bool, int64_t, double,
                   std::shared_ptr<const jinja::Text>, std::shared_ptr<const jinja::Sequence>,
                   std::shared_ptr<const jinja::Dict>, std::shared_ptr<jinja::Object>>;
  explicit JinjaValue(Data data) : data_(std::move(data)) {}
  const Data& data() const { return data_; }

 private:
  Data data_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_JINJA_VALUE_H_
