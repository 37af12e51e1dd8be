// Finds the objects that an argument means where inputs are named, as files_below.h and patterns do for files.
#ifndef CAIRN_CORPUS_IO_OBJECT_INPUTS_H_
#define CAIRN_CORPUS_IO_OBJECT_INPUTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {

// Returns the addresses of all objects that `argument` means, in the order of SortByName: it is an object, a pattern
// (`*`, `?` and `[...]` in any name, which match no slash and no dot at the begin), or a directory, which stands for
// all objects below it except hidden ones. A slash at the end says that it is a directory. What the listings tell of
// the objects is remembered (ObjectStores::Remember). INPUT_UNREADABLE: there is no such object, or none matches. Else
// the errors of `stores`.
absl::StatusOr<std::vector<std::string>> FindObjects(ObjectStores& stores, const std::string& argument);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OBJECT_INPUTS_H_
