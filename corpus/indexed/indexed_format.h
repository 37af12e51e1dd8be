// Describes Megatron's indexed dataset on disk, from the description in megatron/core/datasets/indexed_dataset.py.
// docs/indexed_dataset.md has it as a table.
//
// `P.bin` holds the raw tokens of all sequences, one after the other. `P.idx`, little-endian and unaligned:
//    0  "MMIDIDX\0\0"
//    9  u64  version 1
//   17  u8   dtype code
//   18  u64  S, sequences
//   26  u64  D, document indices: documents + 1
//   34  i32[S]  tokens of each sequence
//       i64[S]  offset in bytes of each sequence in .bin
//       i64[D]  0, then after each document the number of sequences so far
//       i8[S]   mode of each sequence, in multimodal datasets alone: nothing in the header says so
#ifndef CAIRN_CORPUS_INDEXED_INDEXED_FORMAT_H_
#define CAIRN_CORPUS_INDEXED_INDEXED_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::corpus {

inline constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr size_t kIndexHeaderBytes = 34;

// The numbers are those in the file.
enum class IndexedDtype : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat64 = 6,
  kFloat32 = 7,
  kUint16 = 8,
};

// Returns nothing for a code that is none of the eight.
std::optional<IndexedDtype> IndexedDtypeFromCode(uint8_t code);
size_t IndexedDtypeBytes(IndexedDtype dtype);
// Returns numpy's name, for example "uint16".
std::string_view IndexedDtypeName(IndexedDtype dtype);

// Returns what Megatron writes for a vocabulary: uint16 below 65,500 tokens (extra ones included), else int32.
constexpr IndexedDtype OptimalIndexedDtype(uint64_t vocab_size) {
  return vocab_size < 65500 ? IndexedDtype::kUint16 : IndexedDtype::kInt32;
}

struct IndexHeader {
  IndexedDtype dtype;
  uint64_t sequences;
  uint64_t document_indices;  // documents + 1

  uint64_t pointers_offset() const { return kIndexHeaderBytes + 4 * sequences; }
  uint64_t documents_offset() const { return kIndexHeaderBytes + 12 * sequences; }
  uint64_t modes_offset() const { return documents_offset() + 8 * document_indices; }
};

// Returns the kIndexHeaderBytes bytes of the header.
std::string EncodeIndexHeader(const IndexHeader& header);

std::string BinPath(std::string_view prefix);
std::string IdxPath(std::string_view prefix);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_INDEXED_FORMAT_H_
