#pragma once

// SL_RETURN_IF_ERROR(status) and SL_ASSIGN_OR_RETURN(target, status_or): leave the function with
// the error, or go on. Abseil 20220623 does not bring them.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SL_RETURN_IF_ERROR(expression)                                \
  do {                                                                \
    if (::absl::Status sl_status_ = (expression); !sl_status_.ok()) { \
      return sl_status_;                                              \
    }                                                                 \
  } while (false)

#define SL_CONCAT_INNER_(a, b) a##b
#define SL_CONCAT_(a, b) SL_CONCAT_INNER_(a, b)

#define SL_ASSIGN_OR_RETURN(target, expression) \
  SL_ASSIGN_OR_RETURN_INNER_(SL_CONCAT_(sl_status_or_, __LINE__), target, expression)

#define SL_ASSIGN_OR_RETURN_INNER_(temporary, target, expression) \
  auto temporary = (expression);                                  \
  if (!temporary.ok()) {                                          \
    return std::move(temporary).status();                         \
  }                                                               \
  target = *std::move(temporary)
