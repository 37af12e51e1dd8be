#include "corpus/io/errno_status.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

std::string Text(std::string_view action, std::string_view path, int error_number) {
  return "cannot " + std::string(action) + " " + std::string(path) + ": " +
         std::generic_category().message(error_number);
}

}  // namespace

absl::Status OutputError(std::string_view action, std::string_view path, int error_number) {
  Reason reason = Reason::kStorageError;
  if (error_number == ENOSPC || error_number == EDQUOT) reason = Reason::kNoSpace;
  if (error_number == EROFS || error_number == EACCES || error_number == EPERM) reason = Reason::kStorageReadOnly;
  return MakeError(reason, Text(action, path, error_number), {{"file", std::string(path)}});
}

absl::Status InputError(std::string_view action, std::string_view path, int error_number) {
  return MakeError(Reason::kInputUnreadable, Text(action, path, error_number), {{"file", std::string(path)}});
}

}  // namespace cairn::corpus
