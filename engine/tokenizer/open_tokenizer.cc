#include "engine/tokenizer/open_tokenizer.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/directories/model_directory_file.h"
#include "engine/base/status.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "engine/tokenizer/hf_tokenizer.h"

namespace megatrain {
namespace {

// Returns the error for a directory without tokenizer.json. It names what the directory has
// instead, and what works with it.
absl::Status NoTokenizer(const std::string& directory, FileSystem* files) {
  struct Other {
    const char* file;
    const char* what;
  };
  for (const Other& other : {Other{"spiece.model", "a SentencePiece tokenizer of T5 and others"},
                             Other{"vocab.txt", "a WordPiece tokenizer"},
                             Other{"vocab.json", "GPT-2's older vocab.json and merges.txt"}}) {
    MT_ASSIGN_OR_RETURN(const std::optional<std::string> content,
                        ReadModelDirectoryFile(directory, other.file, files));
    if (!content.has_value()) continue;
    return absl::UnimplementedError(absl::StrCat(
        directory, "/", other.file, ": ", other.what, " is not supported yet: use ",
        "a tokenizer.json (AutoTokenizer.from_pretrained(..).save_pretrained(..) writes it), "
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
  std::string contents[7];
  const char* const names[] = {"tokenizer.json",        "tokenizer.model",
                               "tokenizer_config.json", "special_tokens_map.json",
                               "config.json",           "generation_config.json",
                               "added_tokens.json"};
  for (int i = 0; i < 7; ++i) {
    if (i == 1 && !contents[0].empty()) continue;
    MT_ASSIGN_OR_RETURN(std::optional<std::string> content,
                        ReadModelDirectoryFile(model_directory, names[i], files));
    if (content.has_value()) contents[i] = *std::move(content);
  }
  if (contents[0].empty() && contents[1].empty()) return NoTokenizer(model_directory, files);
  auto opened = MakeHfTokenizer(
      {contents[0], contents[1], contents[2], contents[3], contents[4], contents[5], contents[6]});
  if (!opened.ok()) {
    return absl::Status(opened.status().code(),
                        absl::StrCat(model_directory, ": ", opened.status().message()));
  }
  return opened;
}

}  // namespace megatrain
