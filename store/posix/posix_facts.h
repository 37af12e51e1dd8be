// Finds out what a person should know of a root on a file system.
#ifndef CAIRN_STORE_POSIX_POSIX_FACTS_H_
#define CAIRN_STORE_POSIX_POSIX_FACTS_H_

#include "common/file/confined_directory.h"
#include "store/storage/storage_facts.h"

namespace cairn {

// Writes two small files below ".cairn/", and removes them.
StorageFacts FactsOf(ConfinedDirectory& root);

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_POSIX_FACTS_H_
