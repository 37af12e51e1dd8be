// Reads which part of which tensor an array holds, as Python says it.
#ifndef CAIRN_PYTHON_NATIVE_FINGERPRINT_BOX_H_
#define CAIRN_PYTHON_NATIVE_FINGERPRINT_BOX_H_

#include <cstdint>
#include <optional>

#include "common/tensor/fingerprint.h"

namespace cairn {

// Reads one entry of `boxes` (see cairn_fingerprint), and moves it on behind the entry. `bytes` is the size of the
// array. Returns nothing if the entry is not valid.
std::optional<FingerprintPart> ReadFingerprintBox(const int64_t*& boxes, int64_t bytes);

}  // namespace cairn

#endif  // CAIRN_PYTHON_NATIVE_FINGERPRINT_BOX_H_
