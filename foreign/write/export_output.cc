#include "foreign/write/export_output.h"

namespace cairn {

bool IsOfACheckpoint(std::string_view name) {
  for (const std::string_view ending :
       {".safetensors", ".safetensors.index.json", ".distcp", ".metadata", ".snapshot_metadata"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace cairn
