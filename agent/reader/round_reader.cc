#include "agent/reader/round_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/reader/file_header.h"
#include "agent/reader/round_chunks.h"
#include "common/base/crc32c.h"
#include "common/format/full_name.h"
#include "common/process/log.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/place.h"

namespace cairn {
namespace {

// Buffered reads are done and checked in parts that fit into a core's second-level cache.
constexpr uint64_t kCachedPartBytes = uint64_t{256} << 10;

}  // namespace

struct RoundReader::File {
  File(const v1::ReadFile& file, std::string full_path) : plan(file), path(std::move(full_path)), header(file, path) {}

  const v1::ReadFile& plan;
  const std::string path;  // for messages
  FileHeader header;
  // Where the file's image begins in the slab, if it is there.
  std::optional<uint64_t> slab_offset;
  Mutex mutex;
  std::unique_ptr<StoredFile> reader ABSL_GUARDED_BY(mutex);  // null until the file is read from storage
};

struct RoundReader::Piece : RoundChunk {
  std::vector<ReadFragment> fragments;
  bool from_slab = false;
};

struct RoundReader::Job {
  const v1::ReadRound* round = nullptr;
  std::vector<Piece> pieces;                    // ordered by read and offset
  std::vector<size_t> first_piece;              // for each read, an index into `pieces`; one more entry at the end
  std::unique_ptr<std::atomic<size_t>[]> left;  // pieces of each read that are not done
};

RoundReader::RoundReader(Storage& storage, std::string directory, const v1::ReadPlan& plan, RoundReaderOptions options)
    : storage_(storage), directory_(std::move(directory)), plan_(plan), options_(std::move(options)) {}

RoundReader::~RoundReader() = default;

absl::Status RoundReader::CheckPlan() const {
  const auto bad = [](const std::string& what) {
    return MakeError(Reason::kBadRequest, absl::StrCat("the read plan contradicts itself: ", what));
  };
  for (const v1::ReadFile& file : plan_.files()) {
    const int items = file.item_offsets_size();
    if (file.item_sizes_size() != items || file.item_checksums_size() != items || file.item_names_size() != items) {
      return bad(absl::StrCat("the columns of ", file.path(), " differ in length"));
    }
    uint64_t end = file.header_bytes();
    for (int i = 0; i < items; ++i) {
      if (file.item_offsets(i) < end || file.item_sizes(i) > file.file_bytes() ||
          file.item_offsets(i) > file.file_bytes() - file.item_sizes(i)) {
        return bad(absl::StrCat("item ", file.item_names(i), " of ", file.path(), " lies outside it"));
      }
      end = file.item_offsets(i) + file.item_sizes(i);
    }
    if (file.header_bytes() > kMaxHeaderBytes + 8) return bad(absl::StrCat("the header of ", file.path()));
  }
  for (const v1::ReadRound& round : plan_.rounds()) {
    for (const v1::Read& read : round.reads()) {
      if (read.file() >= static_cast<uint32_t>(plan_.files_size())) return bad("a read of no file");
      const v1::ReadFile& file = plan_.files(static_cast<int>(read.file()));
      if (read.bytes() > file.file_bytes() || read.file_offset() > file.file_bytes() - read.bytes() ||
          read.bytes() > round.buffer_bytes() || read.buffer_offset() > round.buffer_bytes() - read.bytes()) {
        return bad(absl::StrCat("a read of ", read.bytes(), " bytes at ", read.file_offset(), " of ", file.path(),
                                " lies outside the file or its buffer"));
      }
      if (read.file_offset() % kReadAlignment != read.buffer_offset() % kReadAlignment) {
        return bad(absl::StrCat("a read of ", file.path(), " has another alignment in the file than in the buffer"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RoundReader::File*> RoundReader::OpenFile(uint32_t number) {
  MutexLock lock(mutex_);
  auto& file = files_[number];
  if (file == nullptr) {
    const v1::ReadFile& plan = plan_.files(static_cast<int>(number));
    auto opened = std::make_unique<File>(
        plan, IsFullName(plan.path()) ? plan.path() : storage_.FullPath(absl::StrCat(directory_, "/", plan.path())));
    if (options_.slab != nullptr) opened->slab_offset = options_.slab->kept().OffsetOf(plan);
    std::string header(plan.header_bytes(), '\0');
    if (CopyFromSlab(*opened, 0, header.size(), header.data())) {
      if (const absl::Status other = opened->header.Take(std::move(header)); !other.ok()) LeaveSlab(other);
    }
    if (!opened->slab_offset.has_value() || slab_left_) CAIRN_RETURN_IF_ERROR(InStorage(*opened).status());
    file = std::move(opened);
  }
  return file.get();
}

absl::StatusOr<StoredFile*> RoundReader::InStorage(File& file) {
  MutexLock lock(file.mutex);
  if (file.reader != nullptr) return file.reader.get();
  const v1::ReadFile& plan = file.plan;
  OpenOptions options = {.cache = options_.cache, .bytes = plan.file_bytes(), .counters = &counters_};
  std::unique_ptr<StoredFile> reader;
  if (IsFullName(plan.path())) {  // imported: the file is outside of the root
    options.modified_ns = static_cast<int64_t>(plan.modified_ns());
    CAIRN_ASSIGN_OR_RETURN(reader, OpenAnywhere(plan.path(), options));
  } else {
    CAIRN_ASSIGN_OR_RETURN(reader, storage_.Open(absl::StrCat(directory_, "/", plan.path()), options));
  }
  std::string header(plan.header_bytes(), '\0');
  CAIRN_RETURN_IF_ERROR(reader->Read(0, header.size(), header.data(), false));
  CAIRN_RETURN_IF_ERROR(file.header.Take(std::move(header)));
  if (file.slab_offset.has_value()) Log(LogLevel::kInfo, "load_leaves_slab", {{"file", file.path}});
  file.reader = std::move(reader);
  return file.reader.get();
}

bool RoundReader::CopyFromSlab(const File& file, uint64_t offset, uint64_t bytes, char* to) {
  if (!file.slab_offset.has_value() || slab_left_) return false;
  if (!options_.slab->Copy(*file.slab_offset + offset, bytes, to)) {
    slab_left_ = true;
    return false;
  }
  counters_.slab += bytes;
  return true;
}

void RoundReader::LeaveSlab(const absl::Status& why) {
  if (slab_left_.exchange(true)) return;
  Log(LogLevel::kError, "slab_differs", {{"error", why}});
}

// Reads bytes that are only needed to verify a block.
absl::Status RoundReader::ReadFrom(File& file, uint64_t offset, uint64_t bytes, char* to) {
  if (CopyFromSlab(file, offset, bytes, to)) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(StoredFile * reader, InStorage(file));
  return reader->Read(offset, bytes, to, false);
}

// Appends the checksums of bytes that are still in the processor's cache, one fragment for each block of each item.
void RoundReader::Touch(const File& file, uint64_t file_offset, const char* bytes, uint64_t size,
                        std::vector<ReadFragment>& fragments) {
  for (ReadFragment& fragment : CutAtChecksums(file.plan, file_offset, size)) {
    const uint64_t at = file.plan.item_offsets(static_cast<int>(fragment.item)) + fragment.begin;
    fragment.crc32c = Crc32c(bytes + (at - file_offset), fragment.bytes);
    fragments.push_back(fragment);
  }
}

absl::Status RoundReader::ReadPiece(Job& job, Piece& piece, char* buffer) {
  const v1::Read& read = job.round->reads(static_cast<int>(piece.read));
  CAIRN_ASSIGN_OR_RETURN(File * file, OpenFile(read.file()));
  if (CopyPiece(*file, piece, buffer + piece.buffer_offset)) return absl::OkStatus();
  // Reads the whole piece again, including bytes from the slab, because a direct read writes whole blocks.
  piece.fragments.clear();
  piece.from_slab = false;
  CAIRN_ASSIGN_OR_RETURN(StoredFile * reader, InStorage(*file));
  const StoredFile::Way way = reader->Begin(piece.file_offset, piece.bytes);
  const uint64_t part = way == StoredFile::Way::kDirect ? piece.bytes : kCachedPartBytes;
  for (uint64_t at = 0; at < piece.bytes; at += part) {
    const uint64_t bytes = std::min(part, piece.bytes - at);
    char* to = buffer + piece.buffer_offset + at;
    CAIRN_RETURN_IF_ERROR(reader->Read(way, piece.file_offset + at, bytes, to, piece.in_place));
    Touch(*file, piece.file_offset + at, to, bytes, piece.fragments);
  }
  return absl::OkStatus();
}

bool RoundReader::CopyPiece(const File& file, Piece& piece, char* to) {
  piece.from_slab = true;
  for (uint64_t at = 0; at < piece.bytes; at += kCachedPartBytes) {
    const uint64_t bytes = std::min(kCachedPartBytes, piece.bytes - at);
    if (!CopyFromSlab(file, piece.file_offset + at, bytes, to + at)) return false;
    Touch(file, piece.file_offset + at, to + at, bytes, piece.fragments);
  }
  return true;
}

// `crc32c` is the checksum of [from, until) of the item, which is within one block. Reads the rest of the block.
absl::Status RoundReader::VerifyBlock(File& file, size_t item, uint64_t block, uint64_t from, uint64_t until,
                                      uint32_t crc32c) {
  CAIRN_ASSIGN_OR_RETURN(const ItemChecksums* expected, file.header.Checksums(item));
  const uint64_t item_begin = file.plan.item_offsets(static_cast<int>(item));
  const uint64_t begin = block * kChecksumBlockBytes;
  const uint64_t end = std::min(begin + kChecksumBlockBytes, file.plan.item_sizes(static_cast<int>(item)));
  std::string rest(std::max(from - begin, end - until), '\0');
  uint32_t whole = crc32c;
  if (from > begin) {
    CAIRN_RETURN_IF_ERROR(ReadFrom(file, item_begin + begin, from - begin, rest.data()));
    whole = CombineCrc32c(Crc32c(rest.data(), from - begin), crc32c, until - from);
  }
  if (until < end) {
    CAIRN_RETURN_IF_ERROR(ReadFrom(file, item_begin + until, end - until, rest.data()));
    whole = ExtendCrc32c(whole, rest.data(), end - until);
  }
  if (whole != expected->blocks[block])
    return file.header.Mismatch(item, item_begin + begin, whole, expected->blocks[block]);
  return absl::OkStatus();
}

absl::Status RoundReader::VerifyRead(const Job& job, size_t number) {
  std::vector<ReadFragment> fragments;
  for (size_t p = job.first_piece[number]; p < job.first_piece[number + 1]; ++p) {
    fragments.insert(fragments.end(), job.pieces[p].fragments.begin(), job.pieces[p].fragments.end());
  }
  return VerifyRead(job.round->reads(static_cast<int>(number)), fragments);
}

absl::Status RoundReader::VerifyRead(const v1::Read& read, const std::vector<ReadFragment>& fragments) {
  CAIRN_ASSIGN_OR_RETURN(File * file, OpenFile(read.file()));
  size_t i = 0;
  while (i < fragments.size()) {
    const size_t item = fragments[i].item;
    const uint64_t item_bytes = file->plan.item_sizes(static_cast<int>(item));
    size_t end = i;
    uint64_t covered = 0;
    uint32_t whole = 0;
    for (; end < fragments.size() && fragments[end].item == item; ++end) {
      whole = CombineCrc32c(whole, fragments[end].crc32c, fragments[end].bytes);
      covered += fragments[end].bytes;
    }
    const uint32_t expected = file->plan.item_checksums(static_cast<int>(item));
    if (covered == item_bytes && whole == expected) {
      i = end;
      continue;
    }
    if (covered == item_bytes) {
      // If the header is valid, its block checksums tell which block is wrong, for the message.
      const uint64_t item_begin = file->plan.item_offsets(static_cast<int>(item));
      if (!file->header.Checksums(item).ok()) return file->header.Mismatch(item, item_begin, whole, expected);
    }
    while (i < end) {
      const uint64_t block = fragments[i].begin / kChecksumBlockBytes;
      const uint64_t from = fragments[i].begin;
      uint64_t until = from;
      uint32_t crc32c = 0;
      for (; i < end && fragments[i].begin / kChecksumBlockBytes == block; ++i) {
        crc32c = CombineCrc32c(crc32c, fragments[i].crc32c, fragments[i].bytes);
        until += fragments[i].bytes;
      }
      CAIRN_RETURN_IF_ERROR(VerifyBlock(*file, item, block, from, until, crc32c));
    }
    if (covered == item_bytes) {
      // All blocks are right but the whole item is not: manifest and header disagree.
      return file->header.Mismatch(item, file->plan.item_offsets(static_cast<int>(item)), whole, expected);
    }
  }
  return absl::OkStatus();
}

absl::Status RoundReader::FinishRead(Job& job, size_t number, char* buffer) {
  absl::Status verified = VerifyRead(job, number);
  if (HasReason(verified, Reason::kChecksumMismatch)) {
    CAIRN_ASSIGN_OR_RETURN(const File* file, OpenFile(job.round->reads(static_cast<int>(number)).file()));
    if (file->slab_offset.has_value()) {
      // The wrong bytes may come from the slab: those of a piece, or the rest of a block.
      LeaveSlab(verified);
      for (size_t p = job.first_piece[number]; p < job.first_piece[number + 1]; ++p) {
        if (job.pieces[p].from_slab) CAIRN_RETURN_IF_ERROR(ReadPiece(job, job.pieces[p], buffer));
      }
      verified = VerifyRead(job, number);
    }
  }
  if (verified.ok()) bytes_done_ += job.round->reads(static_cast<int>(number)).bytes();
  return verified;
}

absl::StatusOr<StoredFile::Way> RoundReader::Fetch(File& file, uint64_t offset, uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(StoredFile * reader, InStorage(file));
  const StoredFile::Way way = reader->Begin(offset, bytes);
  if (way != StoredFile::Way::kBuffered) return way;
  // A read returns when the bytes are there, and says what is wrong. What it copies stays in the processor's cache.
  thread_local std::vector<char> dropped(kCachedPartBytes);
  for (uint64_t at = 0; at < bytes; at += kCachedPartBytes) {
    const uint64_t part = std::min(kCachedPartBytes, bytes - at);
    CAIRN_RETURN_IF_ERROR(reader->Read(way, offset + at, part, dropped.data(), /*in_place=*/false));
  }
  return way;
}

absl::StatusOr<std::optional<LentPieces>> RoundReader::Lend(uint32_t number, const std::atomic<bool>& stop) {
  std::optional<std::vector<RoundPiece>> pieces = CutIntoPieces(plan_, number);
  if (!pieces.has_value()) return std::nullopt;
  LentPieces lent;
  lent.pieces = *std::move(pieces);
  std::map<uint32_t, size_t> sources;  // by file
  struct Part {
    size_t source;
    uint64_t offset, bytes;
  };
  std::vector<Part> parts;  // to be fetched
  const v1::ReadRound& round = plan_.rounds(static_cast<int>(number));
  for (const v1::Read& read : round.reads()) {
    if (read.bytes() == 0) continue;
    const auto [known, is_new] = sources.emplace(read.file(), lent.sources.size());
    if (is_new) {
      if (lent.sources.size() == kMostLentFiles) return std::nullopt;
      CAIRN_ASSIGN_OR_RETURN(File * file, OpenFile(read.file()));
      const bool in_slab = file->slab_offset.has_value() && !slab_left_;
      lent.sources.push_back({.file = read.file(), .in_slab = in_slab, .begin = in_slab ? *file->slab_offset : 0});
      if (!in_slab) {
        CAIRN_ASSIGN_OR_RETURN(const StoredFile* reader, InStorage(*file));
        if (!reader->shares_page_cache()) return std::nullopt;
      }
    }
    if (lent.sources[known->second].in_slab) {
      lent.slab_bytes += read.bytes();
      continue;
    }
    for (uint64_t at = 0; at < read.bytes(); at += options_.chunk_bytes) {
      parts.push_back({known->second, read.file_offset() + at, std::min(options_.chunk_bytes, read.bytes() - at)});
    }
  }
  std::atomic<bool> refused = false;
  std::atomic<uint64_t> cached = 0;
  CAIRN_RETURN_IF_ERROR(ForEachOnThreads("to read a load", parts.size(), options_.io_threads, [&](size_t i, int) {
    if (stop) return MakeError(Reason::kInterrupted, "the load was stopped");
    if (refused) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(File * file, OpenFile(lent.sources[parts[i].source].file));
    CAIRN_ASSIGN_OR_RETURN(const StoredFile::Way way, Fetch(*file, parts[i].offset, parts[i].bytes));
    if (way == StoredFile::Way::kDirect) refused = true;
    if (way == StoredFile::Way::kCached) cached += parts[i].bytes;
    return absl::OkStatus();
  }));
  if (refused) return std::nullopt;
  lent.cached_bytes = cached;
  return lent;
}

absl::StatusOr<UniqueFd> RoundReader::Share(const LentPieces::Source& source) {
  if (source.in_slab) return options_.slab->Share();
  CAIRN_ASSIGN_OR_RETURN(File * file, OpenFile(source.file));
  CAIRN_ASSIGN_OR_RETURN(StoredFile * reader, InStorage(*file));
  return reader->Share();
}

absl::Status RoundReader::VerifyPieces(uint32_t number, const LentPieces& lent, std::span<const uint32_t> checksums) {
  const v1::ReadRound& round = plan_.rounds(static_cast<int>(number));
  if (checksums.size() != lent.pieces.size()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("the trainer gives ", checksums.size(), " checksums for ",
                                                       lent.pieces.size(), " pieces of round ", number));
  }
  std::vector<std::vector<ReadFragment>> fragments(static_cast<size_t>(round.reads_size()));
  for (size_t i = 0; i < lent.pieces.size(); ++i) {
    fragments[lent.pieces[i].read].push_back(lent.pieces[i].fragment);
    fragments[lent.pieces[i].read].back().crc32c = checksums[i];
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < fragments.size(); ++i) {
    const v1::Read& read = round.reads(static_cast<int>(i));
    CAIRN_RETURN_IF_ERROR(VerifyRead(read, fragments[i]));
    bytes += read.bytes();
  }
  bytes_done_ += bytes;
  counters_.slab += lent.slab_bytes;
  counters_.cached += lent.cached_bytes;
  return absl::OkStatus();
}

absl::Status RoundReader::ReadRound(uint32_t round, char* buffer, const std::atomic<bool>& stop) {
  Job job;
  job.round = &plan_.rounds(static_cast<int>(round));
  const size_t reads = static_cast<size_t>(job.round->reads_size());
  for (const RoundChunk& chunk : CutIntoChunks(*job.round, options_.chunk_bytes)) {
    // Reads of no bytes have no piece.
    while (job.first_piece.size() <= chunk.read) job.first_piece.push_back(job.pieces.size());
    job.pieces.push_back({chunk, {}, false});
  }
  job.first_piece.resize(reads + 1, job.pieces.size());
  job.left = std::make_unique<std::atomic<size_t>[]>(reads);
  for (size_t i = 0; i < reads; ++i) job.left[i] = job.first_piece[i + 1] - job.first_piece[i];

  return ForEachOnThreads("to read a load", job.pieces.size(), options_.io_threads, [&](size_t number, int) {
    if (stop) return MakeError(Reason::kInterrupted, "the load was stopped");
    Piece& piece = job.pieces[number];
    CAIRN_RETURN_IF_ERROR(ReadPiece(job, piece, buffer));
    return job.left[piece.read].fetch_sub(1) == 1 ? FinishRead(job, piece.read, buffer) : absl::OkStatus();
  });
}

}  // namespace cairn
