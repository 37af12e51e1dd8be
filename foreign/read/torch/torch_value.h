// Turns a value that torch.save wrote into the bytes in which Cairn stores an object.
#ifndef CAIRN_FOREIGN_READ_TORCH_TORCH_VALUE_H_
#define CAIRN_FOREIGN_READ_TORCH_TORCH_VALUE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "foreign/read/pickle/pickle.h"

namespace cairn {

// Returns an object's bytes, in the form that python/cairn/_state/objects.py describes. Values that this form cannot
// express (tensors, sets, objects of any class) become {"$cairn": "opaque", "value": DESCRIPTION}. `what` names the
// value in errors. UNIMPLEMENTED (UNSUPPORTED): the value is nested more than 200 levels deep, or its bytes would be
// far longer than its pickle, because it contains the same parts many times.
absl::StatusOr<std::string> EncodeValue(const PickleDocument& document, PickleValue value, const std::string& what);

// Does the same for the value of a whole archive of torch.save, which is untrusted. Also fails as TorchFile::Open.
// Instead of an archive, `archive` may be an entry of torchsnapshot's metadata (a text that begins with "{"), which
// holds a number, a text or bytes. DATA_LOSS (BAD_FOREIGN_FILE): the entry holds something else. Or it may be in
// Cairn's own form already, as the values of per_rank_values.h are; then it is returned unchanged.
absl::StatusOr<std::string> EncodeTorchValue(std::string_view archive, const std::string& what);

// Returns true if these bytes of an object, which EncodeValue made, hold an opaque record.
bool HoldsOpaqueValue(std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_TORCH_TORCH_VALUE_H_
