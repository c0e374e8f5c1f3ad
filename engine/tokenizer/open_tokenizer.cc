#include "engine/tokenizer/open_tokenizer.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/model_directory_file.h"
#include "engine/base/status.h"
#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/bytes_tokenizer.h"

namespace megatrain {
namespace {

// Returns the error for a directory without tokenizer.json. It names what the directory has
// instead, and what works with it.
absl::Status NoTokenizer(const std::string& directory, FileSystem* files) {
  struct Other {
    const char* file;
    const char* what;
  };
  for (const Other& other :
       {Other{"tokenizer.model", "a SentencePiece tokenizer (as Llama 2 has it)"},
        Other{"spiece.model", "a SentencePiece tokenizer"},
        Other{"vocab.txt", "a WordPiece tokenizer"},
        Other{"vocab.json", "GPT-2's older vocab.json and merges.txt"}}) {
    MT_ASSIGN_OR_RETURN(const std::optional<std::string> content,
                        ReadModelDirectoryFile(directory, other.file, files));
    if (!content.has_value()) continue;
    // AutoTokenizer makes a tokenizer.json that works from these.
    const bool converted = std::string_view(other.file) == "vocab.json" ||
                           std::string_view(other.file) == "tokenizer.model";
    return absl::UnimplementedError(absl::StrCat(
        directory, "/", other.file, ": ", other.what, " is not supported yet: use ",
        converted
            ? "a tokenizer.json (AutoTokenizer.from_pretrained(..).save_pretrained(..) writes "
              "it), "
            : "",
        "`tokens` data or `tokenizer: bytes`"));
  }
  return absl::NotFoundError(absl::StrCat(directory,
                                          ": there is no tokenizer.json; `tokenizer: bytes` needs "
                                          "no file, `tokens` data no tokenizer"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> OpenTokenizer(const std::string& model_directory,
                                                               const std::string& choice,
                                                               FileSystem* files) {
  if (choice == "bytes") return MakeBytesTokenizer();
  if (choice != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer \"", choice, "\" is neither auto nor bytes"));
  }
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> tokenizer,
                      ReadModelDirectoryFile(model_directory, "tokenizer.json", files));
  if (!tokenizer.has_value()) return NoTokenizer(model_directory, files);
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> tokenizer_config,
                      ReadModelDirectoryFile(model_directory, "tokenizer_config.json", files));
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> model_config,
                      ReadModelDirectoryFile(model_directory, "config.json", files));
  auto opened =
      MakeBpeTokenizer(*tokenizer, tokenizer_config.value_or(""), model_config.value_or(""));
  if (!opened.ok()) {
    return absl::Status(opened.status().code(),
                        absl::StrCat(model_directory, "/", opened.status().message()));
  }
  return opened;
}

}  // namespace megatrain
