#include "corpus/indexed/indexed_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/open_source.h"

namespace cairn::corpus {
namespace {

constexpr size_t kMostFaults = 8;

absl::Status Corrupt(const std::string& path, std::string_view what) {
  return MakeError(Reason::kIndexCorrupt, absl::StrCat(path, ": ", std::string(what)), {{"file", path}});
}

}  // namespace

IndexedReader::IndexedReader(std::string prefix, RangedInput idx, RangedInput bin)
    : prefix_(std::move(prefix)), idx_(std::move(idx)), bin_(std::move(bin)) {}

absl::Status IndexedReader::ReadIndex(uint64_t offset, void* to, size_t size) const {
  CAIRN_ASSIGN_OR_RETURN(const size_t got, idx_.Read(offset, to, size));
  return got == size ? absl::OkStatus() : Corrupt(IdxPath(prefix_), absl::StrCat("it ends at byte ", offset + got));
}

absl::StatusOr<std::unique_ptr<IndexedReader>> IndexedReader::Open(const std::string& prefix) {
  const std::string idx = IdxPath(prefix);
  CAIRN_ASSIGN_OR_RETURN(RangedInput idx_file, RangedInput::Open(idx));
  CAIRN_ASSIGN_OR_RETURN(RangedInput bin_file, RangedInput::Open(BinPath(prefix)));
  const uint64_t idx_bytes = idx_file.bytes(), bin_bytes = bin_file.bytes();
  auto reader = std::unique_ptr<IndexedReader>(new IndexedReader(prefix, std::move(idx_file), std::move(bin_file)));

  if (idx_bytes < kIndexHeaderBytes) {
    return Corrupt(idx, absl::StrCat("it has ", idx_bytes, " bytes, fewer than a header's ", kIndexHeaderBytes));
  }
  char bytes[kIndexHeaderBytes];
  CAIRN_RETURN_IF_ERROR(reader->ReadIndex(0, bytes, sizeof bytes));
  if (std::string_view(bytes, kIndexMagic.size()) != kIndexMagic) {
    const bool legacy = std::string_view(bytes, 6) == "TNTIDX";
    return Corrupt(idx, legacy ? "it is of Megatron's old lazy/cached format; make the dataset again with mmap"
                               : "it does not begin with MMIDIDX");
  }
  uint64_t version;
  std::memcpy(&version, bytes + 9, 8);
  if (version != kIndexVersion) return Corrupt(idx, absl::StrCat("its version is ", version, ", not 1"));
  const auto dtype = IndexedDtypeFromCode(static_cast<uint8_t>(bytes[17]));
  if (!dtype) {
    return Corrupt(
        idx, absl::StrCat("its dtype code is ", static_cast<int>(static_cast<uint8_t>(bytes[17])), ", not 1 to 8"));
  }
  IndexHeader& header = reader->header_;
  header.dtype = *dtype;
  std::memcpy(&header.sequences, bytes + 18, 8);
  std::memcpy(&header.document_indices, bytes + 26, 8);
  // These first bounds keep the sums below 2^64.
  if (header.sequences > idx_bytes / 12 || header.document_indices > idx_bytes / 8 || header.document_indices == 0) {
    return Corrupt(idx, absl::StrCat("its header says ", header.sequences, " sequences and ", header.document_indices,
                                     " document indices, which its ", idx_bytes, " bytes cannot hold"));
  }
  const uint64_t expected = header.modes_offset();
  reader->multimodal_ = header.sequences > 0 && idx_bytes == expected + header.sequences;
  if (idx_bytes != expected && !reader->multimodal_) {
    return Corrupt(idx, absl::StrCat("it has ", idx_bytes, " bytes; ", header.sequences, " sequences and ",
                                     header.document_indices, " document indices take ", expected));
  }
  if (bin_bytes % IndexedDtypeBytes(*dtype) != 0) {
    return Corrupt(BinPath(prefix), absl::StrCat("it has ", bin_bytes, " bytes, no whole number of tokens of type ",
                                                 std::string(IndexedDtypeName(*dtype))));
  }
  return reader;
}

template <typename T>
absl::Status IndexedReader::Visit(uint64_t offset, uint64_t count, Visitor<T> visitor) const {
  std::vector<T> values(static_cast<size_t>(std::min<uint64_t>(count, idx_.best_piece() / sizeof(T))));
  while (count > 0) {
    const size_t taken = static_cast<size_t>(std::min<uint64_t>(count, values.size()));
    CAIRN_RETURN_IF_ERROR(ReadIndex(offset, values.data(), taken * sizeof(T)));
    CAIRN_RETURN_IF_ERROR(visitor(values.data(), taken));
    offset += taken * sizeof(T);
    count -= taken;
  }
  return absl::OkStatus();
}

absl::Status IndexedReader::VisitLengths(Visitor<int32_t> visitor) const {
  return Visit<int32_t>(kIndexHeaderBytes, header_.sequences, visitor);
}
absl::Status IndexedReader::VisitLengthsAndPointers(
    absl::FunctionRef<absl::Status(const int32_t*, const int64_t*, size_t)> visitor) const {
  std::vector<int64_t> pointers;
  uint64_t offset = header_.pointers_offset();
  return VisitLengths([&](const int32_t* lengths, size_t count) -> absl::Status {
    pointers.resize(count);
    CAIRN_RETURN_IF_ERROR(ReadIndex(offset, pointers.data(), count * 8));
    offset += count * 8;
    return visitor(lengths, pointers.data(), count);
  });
}
absl::Status IndexedReader::VisitPointers(Visitor<int64_t> visitor) const {
  return Visit<int64_t>(header_.pointers_offset(), header_.sequences, visitor);
}
absl::Status IndexedReader::VisitDocuments(Visitor<int64_t> visitor) const {
  return Visit<int64_t>(header_.documents_offset(), header_.document_indices, visitor);
}
absl::Status IndexedReader::VisitModes(Visitor<int8_t> visitor) const {
  return Visit<int8_t>(header_.modes_offset(), multimodal_ ? header_.sequences : 0, visitor);
}

namespace {

// Handles the common case of VerifyIndexed() without a branch per sequence. Returns whether lengths and pointers of a
// piece agree. If so, it advances `expected`, where the next sequence begins, and `statistics`; else it changes
// nothing.
bool TakeSoundPiece(const int32_t* lengths, const int64_t* at, size_t count, uint64_t token_bytes, uint64_t& expected,
                    IndexedStatistics& statistics) {
  uint64_t begin = expected, wrong = 0, empty = 0;
  int32_t longest = 0, shortest = INT32_MAX;
  for (size_t i = 0; i < count; ++i) {
    wrong |= static_cast<uint64_t>(at[i]) ^ begin;
    longest = std::max(longest, lengths[i]);
    shortest = std::min(shortest, lengths[i]);
    empty += lengths[i] == 0;
    begin += static_cast<uint64_t>(static_cast<uint32_t>(lengths[i])) * token_bytes;
  }
  if (wrong != 0 || shortest < 0) return false;
  expected = begin;
  statistics.longest_sequence = std::max<uint64_t>(statistics.longest_sequence, static_cast<uint64_t>(longest));
  statistics.shortest_sequence = std::min<uint64_t>(statistics.shortest_sequence, static_cast<uint64_t>(shortest));
  statistics.empty_sequences += empty;
  return true;
}

// Does the same for the ends of documents. `last` is the end before these.
bool TakeSoundPiece(const int64_t* ends, size_t count, int64_t& last, IndexedStatistics& statistics) {
  uint64_t empty = 0;
  bool falls = false;
  int64_t before = last;
  for (size_t i = 0; i < count; ++i) {
    falls |= ends[i] < before;
    empty += ends[i] == before;
    before = ends[i];
  }
  if (falls) return false;
  last = before;
  statistics.empty_documents += empty;
  return true;
}

}  // namespace

absl::StatusOr<IndexedStatistics> VerifyIndexed(const IndexedReader& reader, bool read_bin) {
  const IndexHeader& header = reader.header();
  const uint64_t token_bytes = IndexedDtypeBytes(header.dtype);
  std::vector<std::string> faults;
  uint64_t fault_count = 0;
  const auto fault = [&](const auto&... parts) {
    if (++fault_count <= kMostFaults) faults.push_back(absl::StrCat(parts...));
  };
  IndexedStatistics statistics;
  statistics.shortest_sequence = header.sequences > 0 ? UINT64_MAX : 0;

  // Lengths and pointers are read side by side, so that a piece's pointers are checked while its lengths are at hand.
  uint64_t sequence = 0, expected = 0;
  const std::string idx = IdxPath(reader.prefix());
  CAIRN_RETURN_IF_ERROR(reader.VisitLengthsAndPointers([&](const int32_t* lengths, const int64_t* at, size_t count) {
    if (TakeSoundPiece(lengths, at, count, token_bytes, expected, statistics)) {
      sequence += count;
      return absl::OkStatus();
    }
    for (size_t i = 0; i < count; ++i, ++sequence) {
      if (at[i] != static_cast<int64_t>(expected)) {
        fault("sequence ", sequence, " is said to begin at byte ", at[i], " of .bin, not ", expected);
      }
      if (lengths[i] < 0) {
        fault("sequence ", sequence, " has ", lengths[i], " tokens");
        continue;
      }
      const uint64_t length = static_cast<uint64_t>(lengths[i]);
      expected += length * token_bytes;
      statistics.longest_sequence = std::max(statistics.longest_sequence, length);
      statistics.shortest_sequence = std::min(statistics.shortest_sequence, length);
      statistics.empty_sequences += length == 0;
    }
    return absl::OkStatus();
  }));
  if (expected != reader.bin_bytes()) {
    fault("the sequences take ", expected, " bytes, but .bin has ", reader.bin_bytes());
  }
  uint64_t document = 0;
  int64_t last = 0;
  CAIRN_RETURN_IF_ERROR(reader.VisitDocuments([&](const int64_t* ends, size_t count) {
    if (document > 0 && TakeSoundPiece(ends, count, last, statistics)) {
      document += count;
      return absl::OkStatus();
    }
    for (size_t i = 0; i < count; ++i, ++document) {
      if (document == 0 && ends[i] != 0) fault("the first document index is ", ends[i], ", not 0");
      if (document > 0 && ends[i] < last)
        fault("document index ", document, " is ", ends[i], ", below the one before it, ", last);
      if (document > 0 && ends[i] == last) ++statistics.empty_documents;
      last = ends[i];
    }
    return absl::OkStatus();
  }));
  if (last != static_cast<int64_t>(header.sequences)) {
    fault("the last document ends at sequence ", last, ", but there are ", header.sequences);
  }
  if (fault_count > 0) {
    if (fault_count > faults.size()) faults.push_back(absl::StrCat("and ", fault_count - faults.size(), " more"));
    return Corrupt(idx, absl::StrJoin(faults, "; "));
  }
  if (read_bin) {
    CAIRN_ASSIGN_OR_RETURN(auto source, OpenPlainSource(BinPath(reader.prefix()), 0, UINT64_MAX, {}));
    AlignedBuffer buffer(4 << 20);
    for (uint64_t done = 0;;) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, source->Read(buffer.data(), buffer.size()));
      done += count;
      if (count == 0 && done != reader.bin_bytes())
        return Corrupt(BinPath(reader.prefix()), "its size changed meanwhile");
      if (count == 0) break;
    }
  }
  return statistics;
}

}  // namespace cairn::corpus
