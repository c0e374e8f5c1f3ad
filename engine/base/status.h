// Macros that return early from a function when an absl::Status or absl::StatusOr is an error. The
// function itself returns either of these.
#ifndef MEGATRAIN_ENGINE_BASE_STATUS_H_
#define MEGATRAIN_ENGINE_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// MT_RETURN_IF_ERROR(Write(file));
#define MT_RETURN_IF_ERROR(expr)             \
  do {                                       \
    absl::Status mt_status_ = (expr);        \
    if (!mt_status_.ok()) return mt_status_; \
  } while (false)

#define MT_CONCAT_INNER_(a, b) a##b
#define MT_CONCAT_(a, b) MT_CONCAT_INNER_(a, b)

// MT_ASSIGN_OR_RETURN(auto value, MakeValue());
//
// It expands to several statements: as the body of an `if` it needs braces.
#define MT_ASSIGN_OR_RETURN(lhs, expr) MT_ASSIGN_OR_RETURN_(MT_CONCAT_(mt_or_, __LINE__), lhs, expr)
#define MT_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                         \
  if (!tmp.ok()) return tmp.status();        \
  lhs = std::move(tmp).value()

#endif  // MEGATRAIN_ENGINE_BASE_STATUS_H_
