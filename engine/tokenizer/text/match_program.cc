#include "engine/tokenizer/text/match_program.h"

#include <algorithm>
#include <string>
#include <utility>

namespace megatrain {
namespace {

constexpr size_t kCodePoints = 0x110000;
constexpr char32_t kBlock = 256;  // neighbours that are classified at once

template <typename T>
T* AllocateZeros(size_t count) {
  return static_cast<T*>(std::calloc(count, sizeof(T)));
}

}  // namespace

bool MatchProgram::Begin() {
  classes_.reset(AllocateZeros<Class>(kCodePoints));
  steps_.reset(AllocateZeros<uint16_t>(kStates * kClasses));
  MutexLock lock(&mutex_);
  class_atoms_ = {0, 0};  // kUnknown, kEndOfText
  ways_ = {/*kDone*/ {}, {}, /*kBegin*/ {0}};
  states_ = {{ways_[kDone], kDone}, {ways_[kBegin], kBegin}};
  return classes_ != nullptr && steps_ != nullptr;
}

MatchProgram::Class MatchProgram::Classify(char32_t c) const {
  const char32_t first = c / kBlock * kBlock;
  std::string block;
  for (char32_t here = first; here < first + kBlock; ++here) {
    if (here < 0xd800 || here > 0xdfff) AppendUtf8(here, &block);
  }
  uint32_t atoms[kBlock] = {};
  for (size_t i = 0; i < atoms_.size(); ++i) {
    const absl::Status status = atoms_[i]->ForEachMatch(
        block, 0,
        [&](size_t begin, size_t) { atoms[Utf8At(block, begin) - first] |= uint32_t{1} << i; },
        nullptr);
    if (!status.ok()) return kTooMany;  // out of memory: asked again the next time
  }
  MutexLock lock(&mutex_);
  Class classes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) {
    const auto known =
        std::find(class_atoms_.begin() + kEndOfText + 1, class_atoms_.end(), atoms[i]);
    const auto number = static_cast<size_t>(known - class_atoms_.begin());
    if (number < kTooMany && known == class_atoms_.end()) class_atoms_.push_back(atoms[i]);
    classes[i] = static_cast<Class>(std::min<size_t>(number, kTooMany));
    std::atomic_ref(classes_[first + i]).store(classes[i], std::memory_order_relaxed);
  }
  return classes[c - first];
}

uint16_t MatchProgram::WorkOut(State state, Class at) const {
  MutexLock lock(&mutex_);
  std::vector<int32_t> next;
  bool match = false;
  const uint32_t atoms = at == kTooMany ? 0 : class_atoms_[at];
  const auto has = [&](int32_t atom) { return (atoms >> atom & 1) != 0; };
  std::vector<bool> seen(code_.size());
  // Ways are followed in their order; those behind a match are given up.
  std::vector<int32_t> open(ways_[state].rbegin(), ways_[state].rend());
  while (!open.empty() && !match) {
    const int32_t place = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(place)]) continue;
    seen[static_cast<size_t>(place)] = true;
    const Instruction& here = code_[static_cast<size_t>(place)];
    switch (here.kind) {
      case Instruction::kAtom:
        if (has(here.atom)) next.push_back(place + 1);
        break;
      case Instruction::kSplit:
        open.push_back(here.or_to);
        open.push_back(here.to);
        break;
      case Instruction::kJump:
        open.push_back(here.to);
        break;
      case Instruction::kNextIs:
      case Instruction::kNextIsNot:
        if (has(here.atom) == (here.kind == Instruction::kNextIs)) open.push_back(place + 1);
        break;
      case Instruction::kMatch:
        match = true;
        break;
    }
  }
  State to = kGaveUp;
  if (const auto known = states_.find(next); known != states_.end()) {
    to = known->second;
  } else if (ways_.size() < kStates) {
    to = static_cast<State>(ways_.size());
    states_.emplace(next, to);
    ways_.push_back(std::move(next));
  }
  if (at == kTooMany) to = kGaveUp;
  const auto step = static_cast<uint16_t>(kWorkedOut | (match ? kMatches : 0) | to);
  std::atomic_ref(steps_[state * kClasses + at]).store(step, std::memory_order_relaxed);
  return step;
}

}  // namespace megatrain
