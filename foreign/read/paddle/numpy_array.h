// Reads arrays of numpy inside of a pickle.
//
// Format: numpy's numpy/_core/src/multiarray/methods.c (array_reduce_ex, array_setstate) and descriptor.c
// (arraydescr_reduce), as protocols 3 to 5 write them.
#ifndef CAIRN_FOREIGN_READ_PADDLE_NUMPY_ARRAY_H_
#define CAIRN_FOREIGN_READ_PADDLE_NUMPY_ARRAY_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "foreign/read/pickle/pickle_document.h"
#include "foreign/read/source/strided_tensor.h"

namespace cairn {

// Returns the array that a value describes; nothing for another value. `document` was read from an outline
// (OutlinePickle), which has the place of the array's elements in the file. `what` names the file in errors. DATA_LOSS
// (BAD_FOREIGN_FILE): the array contradicts itself. UNIMPLEMENTED (UNSUPPORTED): Cairn has no such dtype, the array is
// big-endian, or its elements are encoded in the file, as in a pickle of protocol 2.
absl::StatusOr<std::optional<StridedTensor>> NumpyArray(const PickleDocument& document, PickleValue value,
                                                        const std::string& what);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PADDLE_NUMPY_ARRAY_H_
