#include "store/read/record_index.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/record_index.pb.h"
#include "common/base/crc32c.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

constexpr std::string_view kMagic = "CAIRNIDX";
constexpr uint32_t kVersion = 2;
constexpr size_t kHeadBytes = 16;

uint32_t NumberAt(std::string_view bytes, size_t offset) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof(number));
  return number;
}

void AddNumber(std::string& bytes, uint32_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

absl::Status Corrupt(std::string_view why) {
  return MakeError(Reason::kManifestCorrupt, absl::StrCat("no index of records: ", std::string(why)));
}

bool IsPathOf(const std::string& path, std::string_view job, int64_t step, uint32_t attempt) {
  for (const auto& path_of : {OutcomePath, RepairedPath, DeletionPath}) {
    if (path == path_of(job, step, attempt)) return true;
  }
  return false;
}

}  // namespace

std::string RecordIndexPath(std::string_view job) {
  return absl::StrCat(".cairn/index/", std::string(job), "/records");
}

std::string EncodeRecordIndex(const RecordIndex& records) {
  v1::RecordIndex index;
  for (const auto& [path, record] : records) {
    v1::IndexedRecord& entry = *index.add_records();
    entry.set_path(path);
    entry.set_identity(record.identity);
    entry.set_step(record.step);
    entry.set_attempt(record.attempt);
    entry.set_committed(record.committed);
    entry.set_deleted(record.deleted);
    entry.set_deleted_by_rules(record.deleted_by_rules);
    entry.set_request_id(record.request_id);
    if (!record.error.ok()) *entry.mutable_error() = StatusToProto(record.error);
    entry.set_time_unix_nanos(absl::ToUnixNanos(record.time));
    entry.set_bytes(record.bytes);
    entry.set_world_size(record.world_size);
    entry.set_plan_digest(record.plan_digest);
    entry.set_line(record.lineage.line);
    if (record.lineage.continues_step.has_value()) entry.set_continues_step(*record.lineage.continues_step);
    entry.set_parent_line(record.lineage.parent_line);
    entry.set_sequence(record.lineage.sequence);
    for (const Metric& metric : record.metrics) {
      entry.add_metric_names(metric.name);
      entry.add_metric_values(metric.value);
    }
    for (const Alarm& alarm : record.alarms) {
      v1::AlarmRecord& told = *entry.add_alarms();
      told.set_kind(alarm.kind);
      told.set_message(alarm.message);
    }
  }
  const std::string body = index.SerializeAsString();
  std::string bytes(kMagic);
  AddNumber(bytes, kVersion);
  AddNumber(bytes, Crc32c(body.data(), body.size()));
  return bytes + body;
}

absl::StatusOr<RecordIndex> DecodeRecordIndex(std::string_view job, std::string_view bytes) {
  if (bytes.size() < kHeadBytes || !bytes.starts_with(kMagic)) return Corrupt("its head is another one");
  if (NumberAt(bytes, 8) != kVersion) return Corrupt("its version is another one");
  const std::string_view body = bytes.substr(kHeadBytes);
  if (NumberAt(bytes, 12) != Crc32c(body.data(), body.size())) return Corrupt("its checksum is wrong");
  v1::RecordIndex index;
  if (!index.ParseFromArray(body.data(), static_cast<int>(body.size()))) return Corrupt("it cannot be decoded");
  RecordIndex records;
  for (v1::IndexedRecord& entry : *index.mutable_records()) {
    if (!CheckStep(entry.step()).ok() || !IsPathOf(entry.path(), job, entry.step(), entry.attempt()) ||
        entry.identity().empty() || entry.metric_names_size() != entry.metric_values_size()) {
      return Corrupt("a record is none of the job's");
    }
    StoredAttempt& record = records[entry.path()];
    record.step = entry.step();
    record.attempt = entry.attempt();
    record.committed = entry.committed();
    record.deleted = entry.deleted();
    record.deleted_by_rules = entry.deleted_by_rules();
    record.request_id = std::move(*entry.mutable_request_id());
    record.error = StatusFromProto(entry.error());
    record.time = absl::FromUnixNanos(entry.time_unix_nanos());
    record.bytes = entry.bytes();
    record.world_size = entry.world_size();
    record.plan_digest = std::move(*entry.mutable_plan_digest());
    record.lineage.line = entry.line();
    if (entry.has_continues_step()) record.lineage.continues_step = entry.continues_step();
    record.lineage.parent_line = entry.parent_line();
    record.lineage.sequence = entry.sequence();
    for (int i = 0; i < entry.metric_names_size(); ++i) {
      record.metrics.push_back({entry.metric_names(i), entry.metric_values(i)});
    }
    for (const v1::AlarmRecord& alarm : entry.alarms()) record.alarms.push_back({alarm.kind(), alarm.message()});
    record.identity = std::move(*entry.mutable_identity());
  }
  return records;
}

}  // namespace cairn
