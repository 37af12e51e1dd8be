#include "foreign/read/paddle/numpy_array.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/pickle/pickle_outline.h"

namespace cairn {
namespace {

struct NamedDtype {
  std::string_view name;
  DType dtype;
};
// Dtypes by the letter of their kind and the bytes of an element.
constexpr NamedDtype kDtypes[] = {
    {"b1", DType::kBool},      {"u1", DType::kUint8},       {"i1", DType::kInt8},    {"u2", DType::kUint16},
    {"i2", DType::kInt16},     {"u4", DType::kUint32},      {"i4", DType::kInt32},   {"u8", DType::kUint64},
    {"i8", DType::kInt64},     {"f2", DType::kFloat16},     {"f4", DType::kFloat32}, {"f8", DType::kFloat64},
    {"c8", DType::kComplex64}, {"c16", DType::kComplex128},
};

// Compares a global with one of numpy, whose modules were renamed in numpy 2.
bool IsOfNumpy(const PickleDocument& document, PickleValue value, std::string_view module, std::string_view name) {
  return document.IsGlobal(value, absl::StrCat("numpy._core.", std::string(module)), name) ||
         document.IsGlobal(value, absl::StrCat("numpy.core.", std::string(module)), name);
}

class ArrayReader {
 public:
  ArrayReader(const PickleDocument& document, const std::string& what) : document_(document), what_(what) {}

  absl::StatusOr<std::optional<StridedTensor>> Read(PickleValue value) const {
    const PickleObject* object = document_.Object(value);
    if (object == nullptr) return std::nullopt;
    // Protocols 2 to 4 make an empty array and set its state: version, shape, dtype, order, elements.
    if (IsOfNumpy(document_, object->callable, "multiarray", "_reconstruct")) {
      const std::vector<PickleValue> state = document_.Elements(object->state, 6);
      if (object->state.kind() != PickleKind::kTuple || state.size() != 5) return Bad("has an array without its state");
      return Make(state[4], state[2], state[1], document_.Bool(state[3]).value_or(false));
    }
    // Protocol 5 gives elements, dtype, shape and order.
    if (IsOfNumpy(document_, object->callable, "numeric", "_frombuffer")) {
      const std::vector<PickleValue> arguments = document_.Elements(object->arguments, 5);
      if (arguments.size() != 4) return Bad("has an array without its description");
      return Make(arguments[0], arguments[1], arguments[2], document_.Text(arguments[3]) == "F");
    }
    return std::nullopt;
  }

 private:
  absl::Status Bad(std::string_view problem) const {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(what_, " ", std::string(problem)), {{"file", what_}});
  }
  absl::Status Unsupported(std::string_view problem) const {
    return MakeError(Reason::kUnsupported, absl::StrCat(what_, ": an array ", std::string(problem)), {{"file", what_}});
  }

  absl::StatusOr<std::optional<StridedTensor>> Make(PickleValue elements, PickleValue dtype, PickleValue shape,
                                                    bool column_major) const {
    StridedTensor tensor;
    CAIRN_ASSIGN_OR_RETURN(tensor.dtype, Dtype(dtype));
    const auto dims = Dims(shape);
    if (!dims.has_value()) return Bad("has an array without a valid shape");
    tensor.shape = *dims;
    const std::optional<int64_t> count = ElementCount(tensor.shape);
    if (!count.has_value()) return Bad(absl::StrCat("has an array of the shape ", ShapeToString(tensor.shape)));
    const std::optional<PickledBytes> place = PlaceOfBytes(document_, elements);
    if (!place.has_value()) {
      return Unsupported("is encoded in the file; write the file with protocol 4 of pickle");
    }
    const auto width = static_cast<uint64_t>(BytesOf(tensor.dtype));
    if (place->bytes / width != static_cast<uint64_t>(*count) || place->bytes % width != 0) {
      return Bad(absl::StrCat("has an array ", std::string(NameOf(tensor.dtype)), ShapeToString(tensor.shape), " of ",
                              place->bytes, " bytes"));
    }
    tensor.offset = place->offset;
    tensor.strides.resize(tensor.shape.size());
    int64_t stride = 1;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      const size_t axis = column_major ? i : tensor.shape.size() - 1 - i;
      tensor.strides[axis] = stride;
      if (*count != 0) stride *= tensor.shape[axis];
    }
    return std::make_optional(std::move(tensor));
  }

  // A dtype is pickled as its name, and a state with the byte order: (3, "<", ...).
  absl::StatusOr<DType> Dtype(PickleValue value) const {
    const PickleObject* object = document_.Object(value, "numpy", "dtype");
    const std::vector<PickleValue> arguments =
        object == nullptr ? std::vector<PickleValue>() : document_.Elements(object->arguments, 1);
    const auto name = arguments.empty() ? std::nullopt : document_.Text(arguments[0]);
    if (!name.has_value()) return Bad("has an array without a dtype");
    const std::vector<PickleValue> state = document_.Elements(object->state, 2);
    if (state.size() == 2 && document_.Text(state[1]) == ">") return Unsupported("is big-endian");
    for (const NamedDtype& known : kDtypes) {
      if (known.name == *name) return known.dtype;
    }
    return Unsupported(absl::StrCat("has the dtype '", std::string(*name), "', which Cairn does not know"));
  }

  std::optional<Shape> Dims(PickleValue value) const {
    if (value.kind() != PickleKind::kTuple || document_.Size(value) > kMostDims) return std::nullopt;
    Shape shape;
    bool valid = true;
    document_.ForEach(value, [&](PickleValue each) {
      const std::optional<int64_t> size = document_.Int(each);
      valid = valid && size.has_value() && *size >= 0;
      shape.push_back(size.value_or(0));
    });
    return valid ? std::optional(std::move(shape)) : std::nullopt;
  }

  static constexpr size_t kMostDims = 64;

  const PickleDocument& document_;
  const std::string& what_;
};

}  // namespace

absl::StatusOr<std::optional<StridedTensor>> NumpyArray(const PickleDocument& document, PickleValue value,
                                                        const std::string& what) {
  return ArrayReader(document, what).Read(value);
}

}  // namespace cairn
