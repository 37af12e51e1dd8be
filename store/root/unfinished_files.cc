#include "store/root/unfinished_files.h"

namespace cairn {

void RemoveUnfinishedFiles(Storage& storage, absl::Time began) {
  for (const char* directory : {"", ".cairn", ".cairn/plans"}) {
    storage.RemoveUnfinished(directory, began).IgnoreError();
  }
}

}  // namespace cairn
