// Lets a process die between the changes of names that put a set of files in the place of another. For this it takes
// the place of the C library's rename and unlink in a test's process.
#ifndef CAIRN_CORPUS_IO_TESTING_KILLED_AT_NAME_H_
#define CAIRN_CORPUS_IO_TESTING_KILLED_AT_NAME_H_

#include "absl/functional/function_ref.h"

namespace cairn::corpus {

// Runs `work` in a child process that ends, as by SIGKILL, when it would give or take away a name for the `change`th
// time, counted from 1. Returns false if `work` came to its end before that. The caller may have no other threads.
bool KilledAtName(int change, absl::FunctionRef<void()> work);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_TESTING_KILLED_AT_NAME_H_
