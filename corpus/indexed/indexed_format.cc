#include "corpus/indexed/indexed_format.h"

#include <bit>
#include <cstring>

namespace cairn::corpus {

static_assert(std::endian::native == std::endian::little, "tokens and indices are written as they lie in memory");

std::optional<IndexedDtype> IndexedDtypeFromCode(uint8_t code) {
  if (code < 1 || code > 8) return std::nullopt;
  return static_cast<IndexedDtype>(code);
}

size_t IndexedDtypeBytes(IndexedDtype dtype) {
  switch (dtype) {
    case IndexedDtype::kUint8:
    case IndexedDtype::kInt8:
      return 1;
    case IndexedDtype::kInt16:
    case IndexedDtype::kUint16:
      return 2;
    case IndexedDtype::kInt32:
    case IndexedDtype::kFloat32:
      return 4;
    case IndexedDtype::kInt64:
    case IndexedDtype::kFloat64:
      return 8;
  }
  return 0;
}

std::string_view IndexedDtypeName(IndexedDtype dtype) {
  switch (dtype) {
    case IndexedDtype::kUint8:
      return "uint8";
    case IndexedDtype::kInt8:
      return "int8";
    case IndexedDtype::kInt16:
      return "int16";
    case IndexedDtype::kInt32:
      return "int32";
    case IndexedDtype::kInt64:
      return "int64";
    case IndexedDtype::kFloat64:
      return "float64";
    case IndexedDtype::kFloat32:
      return "float32";
    case IndexedDtype::kUint16:
      return "uint16";
  }
  return "";
}

std::string EncodeIndexHeader(const IndexHeader& header) {
  std::string bytes(kIndexHeaderBytes, '\0');
  std::memcpy(bytes.data(), kIndexMagic.data(), kIndexMagic.size());
  std::memcpy(bytes.data() + 9, &kIndexVersion, 8);
  bytes[17] = static_cast<char>(header.dtype);
  std::memcpy(bytes.data() + 18, &header.sequences, 8);
  std::memcpy(bytes.data() + 26, &header.document_indices, 8);
  return bytes;
}

std::string BinPath(std::string_view prefix) { return std::string(prefix) + ".bin"; }
std::string IdxPath(std::string_view prefix) { return std::string(prefix) + ".idx"; }

}  // namespace cairn::corpus
