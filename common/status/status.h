// Macros that return an absl::Status to the caller. common/status/reason.h makes errors.
#ifndef CAIRN_COMMON_STATUS_STATUS_H_
#define CAIRN_COMMON_STATUS_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expression` is an error.
#define CAIRN_RETURN_IF_ERROR(expression)                                 \
  do {                                                                    \
    if (::absl::Status cairn_status = (expression); !cairn_status.ok()) { \
      return cairn_status;                                                \
    }                                                                     \
  } while (false)

// Assigns the value of an absl::StatusOr, or returns its error: CAIRN_ASSIGN_OR_RETURN(auto plan, MakePlan(layout));
#define CAIRN_ASSIGN_OR_RETURN(declaration, expression) \
  CAIRN_ASSIGN_OR_RETURN_IMPL_(CAIRN_CONCAT_(cairn_status_or_, __LINE__), declaration, expression)

#define CAIRN_CONCAT_INNER_(a, b) a##b
#define CAIRN_CONCAT_(a, b) CAIRN_CONCAT_INNER_(a, b)
#define CAIRN_ASSIGN_OR_RETURN_IMPL_(holder, declaration, expression) \
  auto holder = (expression);                                         \
  if (!holder.ok()) return std::move(holder).status();                \
  declaration = *std::move(holder)

#endif  // CAIRN_COMMON_STATUS_STATUS_H_
