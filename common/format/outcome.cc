#include "common/format/outcome.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "cairn/v1/manifest.pb.h"
#include "common/base/crc32c.h"
#include "common/format/corrupt_outcome.h"
#include "common/format/manifest_record.h"
#include "common/format/record_meter.h"
#include "common/format/wire.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// The container is the same in every version; all numbers are little-endian.
//   0  8  magic
//   8  4  version
//  12  8  bytes of the zstd frame
//  20 4 CRC32C of all other bytes
//  24     zstd frame
constexpr std::string_view kMagic = "CAIRNVRD";
constexpr uint32_t kVersion = 1;
constexpr size_t kPrefixBytes = 24;
constexpr int kCompressionLevel = 3;

void AppendLittleEndian(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// A deletion is a few hundred bytes; its cause may be longer.
constexpr uint64_t kMaxDeletionBytes = uint64_t{1} << 20;

// A record may take this much memory whatever its length, ...
constexpr uint64_t kFreeMemory = uint64_t{128} << 20;
// ... or this many times the size of its frame. A shard takes some hundred bytes of memory, and at least four bytes of
// the frame, because zstd cannot compress its checksum.
constexpr uint64_t kMemoryOfFrameByte = 256;
// The maximum window size (log2) that a frame may need: eight times that of frames that are written here.
constexpr int kWindowLog = 24;
// A decoder skips such a frame (RFC 8878, 3.1.2).
constexpr uint32_t kSkippableMagic = 0x184d2a50;

uint64_t AllowedMemory(uint64_t frame_bytes) { return std::max(kFreeMemory, frame_bytes * kMemoryOfFrameByte); }

absl::Status TooMuchMemory(std::string_view frame, uint64_t memory) {
  return CorruptOutcome(absl::StrCat("its ", frame.size(), " bytes expand to a record of ", memory,
                                     " bytes or more in memory, which no checkpoint needs"));
}

// Returns memory that a RecordMeter does not count: each entry of an object has a copy of the object's name.
uint64_t CopiedNames(const v1::OutcomeRecord& record) {
  const v1::ManifestRecord& manifest = record.manifest();
  uint64_t bytes = 0;
  for (int n = 0; n < std::min(manifest.object_names_size(), manifest.object_entry_counts_size()); ++n) {
    bytes += uint64_t{manifest.object_entry_counts(n)} * manifest.object_names(n).size();
  }
  return bytes;
}

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
using Context = std::unique_ptr<ZSTD_DCtx, FreeContext>;

// Returns null if there is no memory.
Context NewContext() {
  Context context(ZSTD_createDCtx());
  if (context != nullptr) ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLog);
  return context;
}

// Decompresses the record piece by piece without keeping it, and returns how much memory it will take. Fails if that is
// more than the frame's size allows. Throws std::bad_alloc.
absl::StatusOr<uint64_t> WeighRecord(std::string_view frame, uint64_t record_bytes) {
  const Context context = NewContext();
  if (context == nullptr) throw std::bad_alloc();
  RecordMeter meter(*v1::OutcomeRecord::descriptor());
  std::string piece(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer in = {frame.data(), frame.size(), 0};
  for (uint64_t unpacked = 0; unpacked < record_bytes;) {
    ZSTD_outBuffer out = {piece.data(), piece.size(), 0};
    const size_t before = in.pos;
    const size_t left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (ZSTD_isError(left) || (out.pos == 0 && in.pos == before)) return CorruptOutcome("its zstd frame");
    unpacked += out.pos;
    if (!meter.Add({piece.data(), out.pos})) return CorruptOutcome("its record is no OutcomeRecord");
    if (meter.memory() > AllowedMemory(frame.size())) return TooMuchMemory(frame, meter.memory());
  }
  return meter.memory();
}

// Decompresses and parses the record of bytes that CheckOutcome has accepted. Throws std::bad_alloc.
absl::StatusOr<v1::OutcomeRecord> UnpackChecked(std::string_view bytes, uint64_t max_record_bytes) {
  const std::string_view frame = bytes.substr(kPrefixBytes);
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR)
    return CorruptOutcome("no zstd frame of known length");
  if (size > max_record_bytes || size > INT32_MAX) return CorruptOutcome(absl::StrCat("a record of ", size, " bytes"));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t memory, WeighRecord(frame, size));
  std::string plain(size, '\0');
  const size_t unpacked = ZSTD_decompress(plain.data(), plain.size(), frame.data(), frame.size());
  if (ZSTD_getErrorCode(unpacked) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  if (unpacked != size) return CorruptOutcome("its zstd frame");
  v1::OutcomeRecord record;
  if (!record.ParseFromString(plain)) return CorruptOutcome("its record is no OutcomeRecord");
  if (const uint64_t all = memory + CopiedNames(record); all > AllowedMemory(frame.size())) {
    return TooMuchMemory(frame, all);
  }
  return record;
}

// Decodes bytes that CheckOutcome has accepted. Throws std::bad_alloc.
absl::StatusOr<Outcome> DecodeChecked(std::string_view bytes, uint64_t max_record_bytes) {
  CAIRN_ASSIGN_OR_RETURN(const v1::OutcomeRecord record, UnpackChecked(bytes, max_record_bytes));
  switch (record.outcome_case()) {
    case v1::OutcomeRecord::kManifest: {
      CAIRN_ASSIGN_OR_RETURN(Manifest manifest, ReadManifestRecord(record.manifest()));
      return Outcome(std::move(manifest));
    }
    case v1::OutcomeRecord::kAbortRecord: {
      const v1::AbortRecord& in = record.abort_record();
      return Outcome(AbortRecord{in.job(), in.step(), in.attempt(), in.request_id(), in.reason(), in.message(),
                                 absl::FromUnixNanos(in.time_unix_nanos())});
    }
    case v1::OutcomeRecord::kDeletion:
      return CorruptOutcome("the file holds a deletion and not an outcome");
    case v1::OutcomeRecord::OUTCOME_NOT_SET:
      break;
  }
  return MakeError(Reason::kFormatTooNew, "the outcome is of a kind that this version does not know");
}

std::string Pack(v1::OutcomeRecord record) {
  const std::string plain = record.SerializeAsString();
  RecordMeter meter(*v1::OutcomeRecord::descriptor());
  meter.Add(plain);
  const uint64_t memory = meter.memory() + CopiedNames(record);
  record.Clear();
  std::string bytes(kPrefixBytes + ZSTD_compressBound(plain.size()), '\0');
  size_t frame = ZSTD_compress(bytes.data() + kPrefixBytes, bytes.size() - kPrefixBytes, plain.data(), plain.size(),
                               kCompressionLevel);
  bytes.resize(kPrefixBytes + frame);
  if (memory > AllowedMemory(frame)) {
    // Equal tensors make a frame so short that a reader would refuse it. A skippable frame makes it longer.
    const uint64_t lacking = memory / kMemoryOfFrameByte + 1 - frame;
    AppendLittleEndian(kSkippableMagic, 4, bytes);
    AppendLittleEndian(lacking, 4, bytes);
    bytes.append(lacking, '\0');
    frame = bytes.size() - kPrefixBytes;
  }
  std::string prefix(kMagic);
  AppendLittleEndian(kVersion, 4, prefix);
  AppendLittleEndian(frame, 8, prefix);
  const uint32_t crc = ExtendCrc32c(Crc32c(prefix.data(), prefix.size()), bytes.data() + kPrefixBytes, frame);
  AppendLittleEndian(crc, 4, prefix);
  std::memcpy(bytes.data(), prefix.data(), kPrefixBytes);
  return bytes;
}

}  // namespace

std::string EncodeOutcome(const Outcome& outcome) {
  v1::OutcomeRecord record;
  if (const auto* manifest = std::get_if<Manifest>(&outcome)) {
    WriteManifestRecord(*manifest, *record.mutable_manifest());
  } else {
    const auto& abort_record = std::get<AbortRecord>(outcome);
    v1::AbortRecord& out = *record.mutable_abort_record();
    out.set_job(abort_record.job);
    out.set_step(abort_record.step);
    out.set_attempt(abort_record.attempt);
    out.set_request_id(abort_record.request_id);
    out.set_reason(abort_record.reason);
    out.set_message(abort_record.message);
    out.set_time_unix_nanos(absl::ToUnixNanos(abort_record.time));
  }
  return Pack(std::move(record));
}

std::string EncodeDeletion(const Deletion& deletion) {
  v1::OutcomeRecord record;
  v1::DeletionRecord& out = *record.mutable_deletion();
  out.set_job(deletion.job);
  out.set_step(deletion.step);
  out.set_attempt(deletion.attempt);
  out.set_request_id(deletion.request_id);
  out.set_cause(deletion.cause);
  out.set_time_unix_nanos(absl::ToUnixNanos(deletion.time));
  out.set_remaining_step(deletion.remaining_step);
  out.set_bytes(deletion.bytes);
  out.set_world_size(deletion.world_size);
  out.set_commit_time_unix_nanos(absl::ToUnixNanos(deletion.commit_time));
  out.set_by_rules(deletion.by_rules);
  return Pack(std::move(record));
}

absl::Status CheckOutcome(std::string_view bytes) {
  if (bytes.size() < kPrefixBytes)
    return CorruptOutcome(absl::StrCat("it has ", bytes.size(), " bytes, fewer than its head"));
  if (bytes.substr(0, 8) != kMagic) return CorruptOutcome("it does not begin with CAIRNVRD");
  const uint64_t version = LittleEndian(bytes.substr(8, 4));
  const uint64_t length = LittleEndian(bytes.substr(12, 8));
  const std::string_view frame = bytes.substr(kPrefixBytes);
  if (length != frame.size()) {
    return CorruptOutcome(absl::StrCat("its record should have ", length, " bytes and has ", frame.size()));
  }
  // The head is the same in every version, so a wrong checksum means damage even if the version looks newer.
  const uint32_t crc = ExtendCrc32c(Crc32c(bytes.data(), 20), frame.data(), frame.size());
  if (crc != LittleEndian(bytes.substr(20, 4))) return CorruptOutcome("its checksum is wrong");
  if (version > kVersion) {
    return MakeError(Reason::kFormatTooNew,
                     absl::StrCat("the outcome has version ", version, ", this reads ", kVersion));
  }
  if (version == 0) return CorruptOutcome("version 0");
  return absl::OkStatus();
}

absl::StatusOr<Outcome> DecodeOutcome(std::string_view bytes, uint64_t max_record_bytes) {
  CAIRN_RETURN_IF_ERROR(CheckOutcome(bytes));
  return WithMemory("to unpack an outcome", [&] { return DecodeChecked(bytes, max_record_bytes); });
}

absl::StatusOr<Deletion> DecodeDeletion(std::string_view bytes) {
  CAIRN_RETURN_IF_ERROR(CheckOutcome(bytes));
  return WithMemory("to unpack a deletion", [&]() -> absl::StatusOr<Deletion> {
    CAIRN_ASSIGN_OR_RETURN(const v1::OutcomeRecord record, UnpackChecked(bytes, kMaxDeletionBytes));
    if (!record.has_deletion()) return CorruptOutcome("the file holds another record and not a deletion");
    const v1::DeletionRecord& in = record.deletion();
    return Deletion{in.job(),
                    in.step(),
                    in.attempt(),
                    in.cause(),
                    absl::FromUnixNanos(in.time_unix_nanos()),
                    in.remaining_step(),
                    in.request_id(),
                    in.bytes(),
                    in.world_size(),
                    absl::FromUnixNanos(in.commit_time_unix_nanos()),
                    in.by_rules()};
  });
}

bool ShowsManifestOf(std::string_view bytes, std::string_view job, int64_t step, uint32_t attempt) {
  if (bytes.size() < kPrefixBytes || bytes.substr(0, kMagic.size()) != kMagic) return false;
  const std::string_view frame = bytes.substr(kPrefixBytes);
  // This is more than the first fields take. zstd returns a block's bytes only after it has read the whole block.
  std::string plain(ZSTD_DStreamOutSize(), '\0');
  const Context context = NewContext();
  if (context == nullptr) return false;
  ZSTD_inBuffer in = {frame.data(), frame.size(), 0};
  ZSTD_outBuffer out = {plain.data(), plain.size(), 0};
  while (in.pos < in.size && out.pos < out.size) {
    const size_t before = in.pos + out.pos;
    const size_t left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left) || left == 0 || in.pos + out.pos == before) break;
  }
  // Both records begin with the same four fields; the fifth is a number in a manifest and a text in an abort record.
  WireReader reader({plain.data(), out.pos});
  constexpr uint64_t kText = 2;  // wire type
  if (reader.Varint() != (v1::OutcomeRecord::kManifestFieldNumber << 3 | kText) || reader.Varint() == 0) return false;
  std::string_view seen_job;
  uint64_t seen_step = 0, seen_attempt = 0;
  while (const uint32_t field = reader.NextField()) {
    if (reader.is_bytes()) {
      if (field == v1::ManifestRecord::kJobFieldNumber) seen_job = reader.bytes();
      if (field > v1::ManifestRecord::kRequestIdFieldNumber) return false;
      continue;
    }
    if (field == v1::ManifestRecord::kStepFieldNumber) seen_step = reader.number();
    if (field == v1::ManifestRecord::kAttemptFieldNumber) seen_attempt = reader.number();
    if (field < v1::ManifestRecord::kWorldSizeFieldNumber) continue;
    return field == v1::ManifestRecord::kWorldSizeFieldNumber && seen_job == job &&
           seen_step == static_cast<uint64_t>(step) && seen_attempt == attempt;
  }
  return false;
}

}  // namespace cairn
