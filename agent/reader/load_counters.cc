#include "agent/reader/load_counters.h"

namespace cairn {

v1::IoPath LoadCounters::io_path() const {
  if (storage() == 0) return slab == 0 ? v1::IO_PATH_UNSPECIFIED : v1::IO_PATH_SLAB;
  return direct > cached + buffered ? v1::IO_PATH_DIRECT : v1::IO_PATH_CACHED;
}

}  // namespace cairn
