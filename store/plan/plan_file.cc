#include "store/plan/plan_file.h"

#include <algorithm>
#include <map>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/format/wire.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/plan/layout_store.h"

namespace cairn {
namespace {

constexpr std::string_view kMagic = "CAIRNPLN";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = 36;
// 16,384 ranks with layouts of their own take 1 MB.
constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 20;
constexpr size_t kMaxRanks = size_t{1} << 17;
// The names of nodes by rank; the file has each name once.
constexpr uint64_t kMaxNodeBytes = uint64_t{16} << 20;

// The fields of the index. Unknown ones are passed over.
enum Field : uint32_t {
  kBins = 1,
  kMoves = 2,        // 0 never, 1 auto
  kDigests = 3,      // of the distinct layouts, ascending, one behind the other
  kLengths = 4,      // packed; in the order of kDigests, and so is the next one
  kChecksums = 5,    // packed, 4 bytes each
  kNode = 6,         // repeated: the distinct names of nodes
  kRankLayouts = 7,  // packed: by rank, the number of its layout
  kRankNodes = 8,    // packed: by rank, the number of its node
};

void Append(uint64_t number, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t NumberAt(std::string_view bytes, size_t at, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return number;
}

}  // namespace

absl::StatusOr<PlanFile> PlanFile::Open(std::unique_ptr<StoredFile> stored) {
  PlanFile file(std::move(stored));
  const uint64_t size = file.stored_->bytes();
  if (size < kHeadBytes) return file.Damaged("it has no head");
  CAIRN_ASSIGN_OR_RETURN(const std::string head, file.ReadPart(0, kHeadBytes));
  if (!head.starts_with(kMagic)) return file.Damaged("it does not begin with CAIRNPLN");
  if (Crc32c(head.data(), 32) != NumberAt(head, 32, 4)) return file.Damaged("its head is damaged");
  if (NumberAt(head, 8, 4) != kVersion) return file.Damaged(absl::StrCat("its version is ", NumberAt(head, 8, 4)));
  const uint64_t index_bytes = NumberAt(head, 12, 8);
  const uint64_t layout_bytes = NumberAt(head, 20, 8);
  if (index_bytes > kMaxIndexBytes || index_bytes > size - kHeadBytes ||
      layout_bytes != size - kHeadBytes - index_bytes) {
    return file.Damaged(
        absl::StrCat("it has ", size, " bytes, not an index of ", index_bytes, " and layouts of ", layout_bytes));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string index, file.ReadPart(kHeadBytes, index_bytes));
  if (Crc32c(index.data(), index.size()) != NumberAt(head, 28, 4)) return file.Damaged("its index is damaged");
  CAIRN_RETURN_IF_ERROR(file.ReadIndex(index, kHeadBytes + index_bytes, layout_bytes));
  return file;
}

absl::Status PlanFile::Damaged(std::string_view what) const {
  return MakeError(Reason::kPlanUnknown,
                   absl::StrCat(stored_->path(), " is not a valid plan file: ", std::string(what)),
                   {{"file", stored_->path()}});
}

absl::StatusOr<std::string> PlanFile::ReadPart(uint64_t offset, uint64_t size) const {
  auto bytes = cairn::ReadPart(*stored_, offset, size);
  return HasReason(bytes.status(), Reason::kFileTruncated) ? Damaged("it ends too early") : bytes;
}

absl::Status PlanFile::ReadIndex(std::string_view index, uint64_t first, uint64_t layout_bytes) {
  WireReader reader(index);
  uint64_t moves = 0;
  uint64_t bins = 0;
  std::string_view digests;
  std::string_view checksums;
  std::vector<uint64_t> lengths;
  std::vector<std::string> nodes;
  std::vector<uint64_t> rank_layouts;
  std::vector<uint64_t> rank_nodes;
  bool valid = true;
  while (const uint32_t field = reader.NextField()) {
    if (field == kBins) bins = reader.number();
    if (field == kMoves) moves = reader.number();
    if (field == kDigests && reader.is_bytes()) digests = reader.bytes();
    if (field == kLengths) valid = AppendNumbers(reader, lengths) && valid;
    if (field == kChecksums && reader.is_bytes()) checksums = reader.bytes();
    if (field == kNode && reader.is_bytes()) nodes.emplace_back(reader.bytes());
    if (field == kRankLayouts) valid = AppendNumbers(reader, rank_layouts) && valid;
    if (field == kRankNodes) valid = AppendNumbers(reader, rank_nodes) && valid;
  }
  const size_t count = lengths.size();
  if (!reader.ok() || !valid || bins < 1 || bins > 99 || moves > 1 || digests.size() != count * kDigestBytes ||
      checksums.size() != count * 4 || rank_layouts.empty() || rank_layouts.size() > kMaxRanks ||
      rank_nodes.size() != rank_layouts.size()) {
    return Damaged("its index is not whole");
  }
  uint64_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    if (lengths[i] > kMaxLayoutBytes || lengths[i] > layout_bytes - offset) {
      return Damaged(absl::StrCat("layout ", i, " is longer than its file or the limit of a layout"));
    }
    std::string digest(digests.substr(i * kDigestBytes, kDigestBytes));
    if (i > 0 && digest <= layouts_.back().digest) return Damaged("its layouts are not in their order");
    layouts_.push_back(
        {std::move(digest), first + offset, lengths[i], static_cast<uint32_t>(NumberAt(checksums, i * 4, 4))});
    offset += lengths[i];
  }
  if (offset != layout_bytes) return Damaged("its layouts have other lengths");
  inputs_.bins = static_cast<int>(bins);
  inputs_.moves = moves == 1 ? MovePolicy::kAuto : MovePolicy::kNever;
  uint64_t node_bytes = 0;
  for (size_t rank = 0; rank < rank_layouts.size(); ++rank) {
    if (rank_layouts[rank] >= count || rank_nodes[rank] >= nodes.size()) {
      return Damaged(absl::StrCat("rank ", rank, " has no layout or no node"));
    }
    node_bytes += nodes[rank_nodes[rank]].size();
    if (node_bytes > kMaxNodeBytes) return Damaged("the names of its nodes are too long");
    inputs_.layout.push_back(layouts_[rank_layouts[rank]].digest);
    inputs_.node.push_back(nodes[rank_nodes[rank]]);
  }
  return absl::OkStatus();
}

const PlanFile::Layout* PlanFile::Find(std::string_view digest) const {
  const auto found = std::lower_bound(layouts_.begin(), layouts_.end(), digest,
                                      [](const Layout& layout, std::string_view what) { return layout.digest < what; });
  return found != layouts_.end() && found->digest == digest ? &*found : nullptr;
}

absl::StatusOr<std::string> PlanFile::ReadLayout(const Layout& layout) const {
  CAIRN_ASSIGN_OR_RETURN(std::string bytes, ReadPart(layout.offset, layout.bytes));
  if (Crc32c(bytes.data(), bytes.size()) != layout.crc32c) {
    return Damaged(absl::StrCat("the layout ", DigestHex(layout.digest), " is damaged"));
  }
  return bytes;
}

absl::StatusOr<uint64_t> WritePlanFile(Storage& storage, std::string_view path, const PlanInputs& inputs,
                                       const std::vector<std::shared_ptr<const std::string>>& bytes) {
  struct Distinct {
    std::string_view bytes;
    uint32_t number = 0;
  };
  std::map<std::string_view, Distinct> layouts;
  std::map<std::string_view, uint32_t> nodes;
  std::vector<std::string_view> node_names;
  uint64_t node_bytes = 0;
  for (size_t rank = 0; rank < inputs.layout.size(); ++rank) {
    node_bytes += inputs.node[rank].size();
    layouts.try_emplace(inputs.layout[rank], Distinct{*bytes[rank]});
    if (nodes.try_emplace(inputs.node[rank], nodes.size()).second) node_names.push_back(inputs.node[rank]);
  }
  std::vector<std::string_view> pieces(1);  // the head and the index
  std::string digests;
  std::vector<uint64_t> lengths;
  std::vector<uint32_t> checksums;
  uint64_t layout_bytes = 0;
  for (auto& [digest, layout] : layouts) {
    layout.number = static_cast<uint32_t>(lengths.size());
    digests.append(digest);
    lengths.push_back(layout.bytes.size());
    checksums.push_back(Crc32c(layout.bytes.data(), layout.bytes.size()));
    layout_bytes += layout.bytes.size();
    pieces.push_back(layout.bytes);
  }
  std::vector<uint32_t> rank_layouts;
  std::vector<uint32_t> rank_nodes;
  for (size_t rank = 0; rank < inputs.layout.size(); ++rank) {
    rank_layouts.push_back(layouts[inputs.layout[rank]].number);
    rank_nodes.push_back(nodes[inputs.node[rank]]);
  }
  std::string index;
  WireWriter writer(index);
  writer.Number(kBins, static_cast<uint64_t>(inputs.bins));
  writer.Number(kMoves, inputs.moves == MovePolicy::kAuto ? 1 : 0);
  writer.Bytes(kDigests, digests);
  writer.Packed(kLengths, lengths);
  writer.PackedFixed32(kChecksums, checksums);
  for (const std::string_view node : node_names) writer.Bytes(kNode, node);
  writer.Packed(kRankLayouts, rank_layouts);
  writer.Packed(kRankNodes, rank_nodes);
  if (inputs.layout.size() > kMaxRanks || node_bytes > kMaxNodeBytes || index.size() > kMaxIndexBytes) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("what a plan of ", inputs.layout.size(), " ranks was made from has an index of ",
                                  index.size(), " bytes and ", node_bytes, " bytes of names of nodes"));
  }
  std::string head(kMagic);
  Append(kVersion, 4, head);
  Append(index.size(), 8, head);
  Append(layout_bytes, 8, head);
  Append(Crc32c(index.data(), index.size()), 4, head);
  Append(Crc32c(head.data(), head.size()), 4, head);
  head.append(index);
  pieces[0] = head;
  CAIRN_RETURN_IF_ERROR(storage.PutReplacing(path, pieces));
  return head.size() + layout_bytes;
}

}  // namespace cairn
