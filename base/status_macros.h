#pragma once

// SL_RETURN_IF_ERROR(status) and SL_ASSIGN_OR_RETURN(target, status_or): leave the function with
// the error, or go on. Abseil 20220623 does not bring them.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SL_CONCAT_INNER_(a, b) a##b
#define SL_CONCAT_(a, b) SL_CONCAT_INNER_(a, b)

// A name of its own for each use: one may stand inside another's expression.
#define SL_RETURN_IF_ERROR(expression) \
  SL_RETURN_IF_ERROR_INNER_(SL_CONCAT_(sl_status_, __COUNTER__), expression)

#define SL_RETURN_IF_ERROR_INNER_(temporary, expression)            \
  do {                                                              \
    if (::absl::Status temporary = (expression); !temporary.ok()) { \
      return temporary;                                             \
    }                                                               \
  } while (false)

#define SL_ASSIGN_OR_RETURN(target, expression) \
  SL_ASSIGN_OR_RETURN_INNER_(SL_CONCAT_(sl_status_or_, __COUNTER__), target, expression)

#define SL_ASSIGN_OR_RETURN_INNER_(temporary, target, expression) \
  auto temporary = (expression);                                  \
  if (!temporary.ok()) {                                          \
    return std::move(temporary).status();                         \
  }                                                               \
  target = *std::move(temporary)
