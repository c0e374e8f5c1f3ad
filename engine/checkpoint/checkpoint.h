// The layout of a checkpoint on disk. This header has no declarations: it documents the format and
// includes the headers that read and write it.
//
// A checkpoint is one directory for each saved step, `step-00000100/`. The model is cut into N
// tiles (a layer, say; engine/model/tile.h). For each tile i, from 1, the directory holds
//   model-0000i-of-0000N.safetensors       the weights under their Hugging Face names
//   optimizer-0000i-of-0000N.safetensors   NAME.exp_avg and NAME.exp_avg_sq (F32), and with BF16
//                                          weights NAME.remainder (I16); of tensors that are
//                                          not frozen
// and once
//   model-carried.safetensors              for a wrapper (a model of images and text): the tensors
//                                          that are not the text model's
//   model.safetensors.index.json, config.json, tokenizer files
//   manifest.json                          the CheckpointState, the size and XXH3-128 of every
//                                          other file, and the XXH3-128 of each block of the
//                                          tiles' files
// In a part of a checkpoint (CheckpointPart in manifest.h) the names of the tiles' files end in
// ".part", and the directory is no Hugging Face model.
//
// The weights, the index and config.json make the directory a valid Hugging Face model, unless a
// tensor lies in several tiles (stacked experts, tables of per-layer inputs). The parts of such a
// tensor have names of their own (HfPartName and HfColumnsName in hf_format.h). The index is then
// model.parts.index.json, so that other programs refuse the directory.
//
// Tensors are little-endian, unpadded and in Hugging Face shapes. The bits of the FP32 master of a
// BF16 weight are (see split_master.h)
//   master_bits = ((weight - (remainder < 0)) << 16) | uint16(remainder)
//
// The writer fills `step-00000100.tmp`, the manifest last, and syncs each file. It reads every file
// back and verifies it before it renames the directory. So a directory without ".tmp" was whole
// when it got its name. The tensors' files do not depend on the number of processes that wrote
// them, unless each machine writes a part of the checkpoint.
//
// A job uses these functions in this order:
//   RemoveLeftovers, FindNewestToLoad, ReadCheckpointState, CheckResumable,
//   ReadManifest, LoadCheckpointTile...
//   CheckpointWriter::Begin, WriteTile..., Finish
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_

#include "engine/checkpoint/checkpoint_directory.h"  // IWYU pragma: export
#include "engine/checkpoint/checkpoint_reader.h"     // IWYU pragma: export
#include "engine/checkpoint/checkpoint_state.h"      // IWYU pragma: export
#include "engine/checkpoint/checkpoint_writer.h"     // IWYU pragma: export
#include "engine/checkpoint/newest_checkpoint.h"     // IWYU pragma: export
#include "engine/checkpoint/resume_check.h"          // IWYU pragma: export
#include "engine/checkpoint/retention.h"             // IWYU pragma: export

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_H_
