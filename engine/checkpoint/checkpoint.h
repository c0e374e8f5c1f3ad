// A checkpoint: one directory a step, `step-00000100/`. It holds for each tile i (from 1) of N
//   model-0000i-of-0000N.safetensors       weights under HF names: with config.json and the index
//                                          the directory is a valid HF model
//   optimizer-0000i-of-0000N.safetensors   NAME.exp_avg, NAME.exp_avg_sq (F32), NAME.remainder
//   (I16,
//                                          bf16 only)
// and
//   model.safetensors.index.json, config.json, tokenizer files
//   manifest.json                          last: every file's size and XXH3-128, and the
//                                          CheckpointState
// It is written as `step-00000100.tmp`, every file fsynced, the manifest last, the directory
// fsynced, read back and verified, renamed, the parent fsynced; so a directory without ".tmp" is
// whole. Tensors are little-endian, unpadded, in HF shapes, and
//   master_bits = ((weight - (remainder < 0)) << 16) | uint16(remainder).
//
// How a job uses it:
//   RemoveLeftovers, FindNewestVerified, ReadCheckpointState, CheckResumable, LoadCheckpointTile...
//   CheckpointWriter::Begin, WriteTile..., Finish
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_

#include "engine/checkpoint/checkpoint_directory.h"  // IWYU pragma: export
#include "engine/checkpoint/checkpoint_reader.h"     // IWYU pragma: export
#include "engine/checkpoint/checkpoint_state.h"      // IWYU pragma: export
#include "engine/checkpoint/checkpoint_writer.h"     // IWYU pragma: export
#include "engine/checkpoint/retention.h"             // IWYU pragma: export

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_
