// Parses the columns of one Layout message from the wire. The columns are untrusted: nothing but their encoding is
// checked here, except by ContradictionOf.
#ifndef CAIRN_COMMON_FORMAT_LAYOUT_COLUMNS_H_
#define CAIRN_COMMON_FORMAT_LAYOUT_COLUMNS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cairn {

// All views point into the parsed bytes. The fields are those of cairn.v1.TensorSchema.
struct SchemaColumns {
  std::vector<std::string_view> names;
  std::vector<int> dtypes;
  std::vector<uint32_t> ndims;
  std::vector<int64_t> dims;
};

// Returns nothing if the bytes are no such message, or if its columns have lengths that contradict each other.
std::optional<SchemaColumns> ParseSchema(std::string_view bytes);

// The fields are those of cairn.v1.Layout.
struct LayoutColumns {
  std::string_view schema;
  std::vector<uint32_t> shard_tensors;
  std::vector<int64_t> offsets;
  std::vector<int64_t> shapes;
  std::vector<uint32_t> flat_shards;
  std::vector<int64_t> flat_begins;
  std::vector<int64_t> flat_ends;
  std::vector<std::string_view> objects;
  std::vector<std::string_view> aliases;
};

// Returns false if the bytes are no such message. Replaces the contents of `columns` and reuses their memory, because
// the layouts of thousands of ranks are parsed one after the other.
bool ParseLayout(std::string_view bytes, LayoutColumns& columns);

// Returns in words why a layout's columns contradict each other or their schema, whose tensors have `ndims` dimensions:
// a shard of a tensor that does not exist, too few or too many offsets or shapes, flat shards that are not ascending.
// The columns are then unusable. It does not check that a shard lies inside its tensor. Returns nothing if there is no
// contradiction.
std::optional<std::string_view> ContradictionOf(const LayoutColumns& columns, std::span<const uint32_t> ndims);

struct ObjectFields {
  std::string_view name;
  uint64_t slot_bytes = 0;
  bool per_rank = false;
  std::string_view content_digest;
  uint32_t wish = 0;  // an ObjectWish; may be a number that this version does not know
};

// Returns true if an object's slot may have this size: a multiple of 4096, from 4096 bytes to 1 TiB.
constexpr bool IsSlotSize(uint64_t bytes) { return bytes != 0 && bytes % 4096 == 0 && bytes <= uint64_t{1} << 40; }

// Returns nothing if the bytes are no ObjectDeclaration.
std::optional<ObjectFields> ParseObject(std::string_view bytes);

struct AliasFields {
  std::string_view name;
  std::string_view target;
};

// Returns nothing if the bytes are no AliasDeclaration.
std::optional<AliasFields> ParseAlias(std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_LAYOUT_COLUMNS_H_
