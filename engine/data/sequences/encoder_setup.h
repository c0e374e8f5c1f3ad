// Settles how a job's documents are tokenized: the chat template, and the ids that end, surround
// and pad texts.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_ENCODER_SETUP_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_ENCODER_SETUP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/chat/chat_template.h"
#include "engine/data/sequences/document_encoder.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// Returns the id that fills the rest of a sequence: the tokenizer's padding token, else its
// end-of-text token, else 0. The first two count only if they are below `vocabulary`. Padding is
// masked and nothing attends to it, so any id of the model will do. `tokenizer` may be null.
int32_t PadId(const Tokenizer* tokenizer, int64_t vocabulary);

// Returns the options of the chat template that the data names. Their day is data.template_date, or
// today in the local time zone if that is empty. They point to `files`, which ChatTemplate::Create
// uses. Returns InvalidArgument if data.template_date is not a day.
absl::StatusOr<ChatTemplateOptions> TemplateOptions(const JobSpec::Data& data,
                                                    const std::string& model_directory,
                                                    FileSystem* files);

// Sets the tokenizer, the special ids and around_chats of `encoder`. If some data is chat or
// preference data, also makes `chat_template`, to which `encoder` then points. `tokenizer` must
// outlive `encoder`; it may be null if all data has format `tokens`. `files` is used during the
// call only. REQUIRES: `encoder` has its vocabulary and no eos_id, and `chat_template` is null.
//
// Returns InvalidArgument if a tokenizer is missing, if nothing says which token ends a text, or if
// that token or one around texts is not the model's. Returns the errors of TemplateOptions,
// ChatTemplate::Create, IdsAroundText and, if the tokenizer has no end-of-text token, of reading
// config.json. Preference data may lack the end token or, with data.chat_template "auto", the
// template: DocumentEncoder refuses the records that need it.
absl::Status PrepareEncoder(const JobSpec::Data& data, const Tokenizer* tokenizer,
                            const std::string& model_directory, FileSystem* files,
                            DocumentEncoderOptions& encoder,
                            std::unique_ptr<ChatTemplate>& chat_template);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_ENCODER_SETUP_H_
