// Finds the bounds of the documents in a micro-batch, within which attention stays. A Batch keeps
// the starts of its documents; attention takes the bounds that are made from them.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_BOUNDS_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_BOUNDS_H_

#include <cstdint>
#include <vector>

namespace megatrain {

// Appends to `starts` the first token of every document of a sequence that begins at token `first`
// of the micro-batch. `document_ids` has an id for each of its tokens. Neighbouring documents, and
// padding, have different ids. Documents do not go on from one sequence to the next. Padding counts
// as a document. The end is not appended: the caller adds the number of tokens for
// WriteDocumentBounds.
void AppendDocumentStarts(const std::vector<int32_t>& document_ids, int64_t first,
                          std::vector<int32_t>& starts);

// Writes `bounds` [tokens, 2]: for each token the first token of its document, and the token behind
// the document's last one. `starts` [documents + 1] has the first token of every document in
// ascending order, then the number of tokens. REQUIRES: starts[0] is 0.
void WriteDocumentBounds(const std::vector<int32_t>& starts, int32_t* bounds);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_DOCUMENT_BOUNDS_H_
