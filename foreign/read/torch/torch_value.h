// Turns a value that torch.save wrote into the bytes by which Cairn keeps an object.
#ifndef CAIRN_FOREIGN_READ_TORCH_TORCH_VALUE_H_
#define CAIRN_FOREIGN_READ_TORCH_TORCH_VALUE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "foreign/read/pickle/pickle.h"

namespace cairn {

// Returns an object's bytes, in the form that python/cairn/_state/objects.py describes. Values that the form lacks
// (tensors, sets, objects of any class) become {"$cairn": "opaque", "value": DESCRIPTION}. `what` names the value in
// errors. UNIMPLEMENTED (UNSUPPORTED): it is nested more than 200 levels deep, or, because it holds the same parts
// again and again, takes far more room than its pickle.
absl::StatusOr<std::string> EncodeValue(const PickleDocument& document, PickleValue value, const std::string& what);

// Does the same for the value of a whole archive of torch.save, which is untrusted. Also fails as TorchFile::Open. A
// text that begins with "{" is an entry of torchsnapshot's metadata, in which a number, a text or bytes stand.
// DATA_LOSS (BAD_FOREIGN_FILE): the entry is none of these. What is in Cairn's own form already, as the values of ranks
// in an export are (per_rank_values.h), stays as it is.
absl::StatusOr<std::string> EncodeTorchValue(std::string_view archive, const std::string& what);

// Returns true if these bytes of an object, which EncodeValue made, hold an opaque record.
bool HoldsOpaqueValue(std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_TORCH_TORCH_VALUE_H_
