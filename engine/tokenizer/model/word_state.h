// The state of a word that is encoded in parts.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_STATE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_STATE_H_

namespace megatrain {

// TokenModel (token_model.h) keeps it from one part of a word to the next. A new one begins a word.
struct WordState {
  bool begun = false;    // a part was encoded before
  bool unknown = false;  // that part ended within a run of unknown characters
  double score = 0;      // of the tokens given so far; used by Unigram

  bool operator==(const WordState&) const = default;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_STATE_H_
