// The components of tokenizer.json that rewrite and cut text: normalizer and pre_tokenizer.
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tokenizer/split/character_classes.h"
#include "engine/tokenizer/text/character_maps.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/unicode_16.h"
#include "engine/tokenizer/text/utf8.h"
#include "engine/tokenizer/tokenizer_json_parts.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

// ---- normalizer

constexpr char kNormalizer[] = "normalizer";

absl::Status ReadBertNormalizer(const Json& item, Normalizer* out) {
  BertNormalization bert;
  MT_ASSIGN_OR_RETURN(bert.clean_text, GetBool(item, "clean_text", true));
  MT_ASSIGN_OR_RETURN(bert.handle_chinese_chars, GetBool(item, "handle_chinese_chars", true));
  MT_ASSIGN_OR_RETURN(bert.lowercase, GetBool(item, "lowercase", true));
  MT_ASSIGN_OR_RETURN(bert.strip_accents, GetBool(item, "strip_accents", bert.lowercase));
  out->AddBert(bert);
  return absl::OkStatus();
}

absl::Status ReadReplace(const Json& item, Normalizer* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view content, GetString(item, "content", "Replace"));
  const Json& text = Get(Get(item, "pattern"), "String");
  if (text.is_string() && !text.get_ref<const std::string&>().empty()) {
    out->AddReplace(text.get_ref<const std::string&>(), content);
    return absl::OkStatus();
  }
  MT_ASSIGN_OR_RETURN(auto pattern, GetPattern(item, "normalizer: Replace"));
  out->AddReplace(std::move(pattern), content);
  return absl::OkStatus();
}

absl::Status ReadPrecompiled(const Json& item, Normalizer* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view encoded,
                      GetString(item, "precompiled_charsmap", "normalizer: Precompiled"));
  std::string blob;
  if (!absl::Base64Unescape(ToAbsl(encoded), &blob)) {
    return absl::InvalidArgumentError("normalizer: precompiled_charsmap is not base64");
  }
  auto charsmap = PrecompiledCharsmap::Parse(blob);
  if (!charsmap.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("normalizer: ", charsmap.status().message()));
  }
  out->AddPrecompiled(*std::move(charsmap));
  return absl::OkStatus();
}

absl::Status ReadNormalizerItem(const Json& item, Normalizer* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(item, kNormalizer));
  if (type == "NFC")
    out->AddForm(UnicodeForm::kNfc);
  else if (type == "NFD")
    out->AddForm(UnicodeForm::kNfd);
  else if (type == "NFKC")
    out->AddForm(UnicodeForm::kNfkc);
  else if (type == "NFKD")
    out->AddForm(UnicodeForm::kNfkd);
  else if (type == "Lowercase")
    out->AddLowercase();
  else if (type == "StripAccents")
    out->AddStripAccents();
  else if (type == "Nmt")
    out->AddNmt();
  else if (type == "BertNormalizer")
    return ReadBertNormalizer(item, out);
  else if (type == "Replace")
    return ReadReplace(item, out);
  else if (type == "Precompiled")
    return ReadPrecompiled(item, out);
  else if (type == "Strip") {
    MT_ASSIGN_OR_RETURN(const bool left, GetBool(item, "strip_left", true));
    MT_ASSIGN_OR_RETURN(const bool right, GetBool(item, "strip_right", true));
    out->AddStrip(left, right);
  } else if (type == "Prepend") {
    MT_ASSIGN_OR_RETURN(const std::string_view text, GetString(item, "prepend", "Prepend"));
    out->AddPrepend(text);
  } else {
    return Unsupported(kNormalizer, type);
  }
  return absl::OkStatus();
}

// ---- pre-tokenizer

constexpr char kPreTokenizer[] = "pre_tokenizer";

// GPT-2's own expression, which ByteLevel stands for with use_regex.
constexpr char kGpt2Regex[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// `tokenizers` takes Rust's char::is_numeric for Digits: N, with two blocks newer than Unicode 16.
constexpr char kNumericRegex[] = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])";
constexpr char kSpaceRegex[] = R"(\s)";

absl::StatusOr<SplitBehavior> ReadBehavior(const Json& split, std::string_view otherwise) {
  const Json& value = Get(split, "behavior");
  if (value.is_null() && otherwise.empty()) {
    return absl::InvalidArgumentError("pre_tokenizer: Split has no \"behavior\"");
  }
  const Json behavior = value.is_null() ? Json(otherwise) : value;
  if (behavior == "Isolated") return SplitBehavior::kIsolated;
  if (behavior == "Removed") return SplitBehavior::kRemoved;
  if (behavior == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (behavior == "Contiguous") return SplitBehavior::kContiguous;
  return absl::InvalidArgumentError(
      absl::StrCat("pre_tokenizer: the behavior ", behavior.dump(-1, ' ', true), " is not known"));
}

// \w of Rust's `regex`: Alphabetic, M, Nd, Pc, Join_Control.
std::string WordClass() {
  return absl::StrCat("[", R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})",
                      CharactersAfterUnicode14("L"), CharactersAfterUnicode14("M"),
                      CharactersAfterUnicode14("Nd"), "]");
}

// Whitespace: runs of \w and of what is neither \w nor white space.
absl::Status ReadWhitespace(PreTokenizer* out) {
  CharacterClasses classes;
  MT_ASSIGN_OR_RETURN(const auto space, SplitRegex::Compile(kSpaceRegex));
  MT_RETURN_IF_ERROR(classes.Assign(*space, CharacterClasses::kRemoved));
  MT_RETURN_IF_ERROR(
      classes.Assign(*SplitRegex::CompilePcre(WordClass()), CharacterClasses::kRun + 1));
  out->AddClasses(std::move(classes));
  return absl::OkStatus();
}

// `single` says that every match is one character.
absl::Status AddRegex(std::string_view regex, SplitBehavior behavior, bool single,
                      PreTokenizer* out) {
  MT_ASSIGN_OR_RETURN(auto compiled, SplitRegex::Compile(regex));
  out->AddSplit(std::move(compiled), behavior, /*invert=*/false, single);
  return absl::OkStatus();
}

absl::Status ReadByteLevel(const Json& item, PreTokenizer* out) {
  MT_ASSIGN_OR_RETURN(const bool prefix_space, GetBool(item, "add_prefix_space", true));
  MT_ASSIGN_OR_RETURN(const bool use_regex, GetBool(item, "use_regex", true));
  if (prefix_space) out->AddPrefixSpace();
  if (!use_regex) return absl::OkStatus();
  return AddRegex(kGpt2Regex, SplitBehavior::kIsolated, false, out);
}

absl::Status ReadMetaspace(const Json& item, PreTokenizer* out) {
  MT_ASSIGN_OR_RETURN(const std::string_view mark,
                      GetCharacter(item, "replacement", "pre_tokenizer: Metaspace"));
  MT_ASSIGN_OR_RETURN(const bool split, GetBool(item, "split", true));
  MT_ASSIGN_OR_RETURN(const bool prefix_space, GetBool(item, "add_prefix_space", true));
  const Json& scheme = Get(item, "prepend_scheme");
  MarkScheme value = MarkScheme::kAlways;
  if (scheme == "first") {
    value = MarkScheme::kFirst;
  } else if (scheme == "never") {
    value = MarkScheme::kNever;
  } else if (!scheme.is_null() && scheme != "always") {
    return absl::UnimplementedError(
        absl::StrCat("pre_tokenizer: Metaspace with the prepend_scheme ",
                     scheme.dump(-1, ' ', true), " is not supported: first, always or never"));
  }
  if (!prefix_space && value != MarkScheme::kNever) {
    return absl::InvalidArgumentError(
        "pre_tokenizer: Metaspace with add_prefix_space false needs the prepend_scheme never");
  }
  out->AddMetaspace(mark, value, split);
  return absl::OkStatus();
}

absl::Status ReadPreTokenizerItem(const Json& item, std::string_view type, PreTokenizer* out) {
  if (type == "ByteLevel") return ReadByteLevel(item, out);
  if (type == "Metaspace") return ReadMetaspace(item, out);
  if (type == "Split") {
    MT_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(item, ""));
    MT_ASSIGN_OR_RETURN(const bool invert, GetBool(item, "invert", false));
    MT_ASSIGN_OR_RETURN(auto pattern, GetPattern(item, "pre_tokenizer: Split"));
    const Json& text = Get(Get(item, "pattern"), "String");
    const bool single =
        text.is_string() && !text.get_ref<const std::string&>().empty() &&
        Utf8Length(static_cast<unsigned char>(text.get_ref<const std::string&>()[0])) ==
            text.get_ref<const std::string&>().size();
    out->AddSplit(std::move(pattern), behavior, invert, single);
    return absl::OkStatus();
  }
  if (type == "Digits") {
    MT_ASSIGN_OR_RETURN(const bool individual, GetBool(item, "individual_digits", false));
    return AddRegex(kNumericRegex,
                    individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, true, out);
  }
  if (type == "WhitespaceSplit") {
    return AddRegex(kSpaceRegex, SplitBehavior::kRemoved, true, out);
  }
  if (type == "CharDelimiterSplit" || type == "Delimiter") {
    MT_ASSIGN_OR_RETURN(const std::string_view delimiter,
                        GetCharacter(item, "delimiter", "pre_tokenizer: CharDelimiterSplit"));
    return AddRegex(EscapeRegex(delimiter), SplitBehavior::kRemoved, true, out);
  }
  if (type == "Punctuation") {
    MT_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(item, "Isolated"));
    out->AddSplit(SplitRegex::CompilePcre(PunctuationClass()), behavior, false, true);
    return absl::OkStatus();
  }
  if (type == "BertPreTokenizer") {
    MT_RETURN_IF_ERROR(AddRegex(kSpaceRegex, SplitBehavior::kRemoved, true, out));
    out->AddSplit(SplitRegex::CompilePcre(PunctuationClass()), SplitBehavior::kIsolated, false,
                  true);
    return absl::OkStatus();
  }
  if (type == "Whitespace") return ReadWhitespace(out);
  if (type == "UnicodeScripts") {
    out->AddScripts();
    return absl::OkStatus();
  }
  return Unsupported(kPreTokenizer, type);
}

}  // namespace

absl::Status ReadNormalizer(const Json& root, TokenizerJson* out) {
  return ForEachComponent(
      Get(root, kNormalizer), kNormalizer, "normalizers",
      [&](const Json& item) { return ReadNormalizerItem(item, &out->normalizer); });
}

absl::Status ReadPreTokenizer(const Json& root, ComponentKinds* kinds, TokenizerJson* out) {
  return ForEachComponent(
      Get(root, kPreTokenizer), kPreTokenizer, "pretokenizers",
      [&](const Json& item) -> absl::Status {
        MT_ASSIGN_OR_RETURN(const std::string_view type, GetType(item, kPreTokenizer));
        if (kinds->byte_level) {
          return absl::UnimplementedError(
              absl::StrCat("pre_tokenizer: ", ToAbsl(type), " behind ByteLevel is not supported"));
        }
        kinds->byte_level = type == "ByteLevel";
        return ReadPreTokenizerItem(item, type, &out->pre_tokenizer);
      });
}

}  // namespace megatrain
