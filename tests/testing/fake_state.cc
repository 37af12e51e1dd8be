#include "tests/testing/fake_state.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/layout.pb.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/format/safetensors_header.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/posix/posix_storage.h"
#include "store/write/attempt_owner.h"

namespace cairn::testing {
namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kColumns = 32;
constexpr int64_t kBias = 100;
constexpr char kMeta[] = "{\"made by\": \"a test\"}";

}  // namespace

FakeState::FakeState(const FakeAgentOptions& options) : options_(options) {
  v1::TensorSchema schema;
  const auto add_tensor = [&](const std::string& name, std::vector<int64_t> shape) {
    schema.add_names(name);
    schema.add_dtypes(v1::DTYPE_FLOAT32);
    schema.add_ndims(static_cast<uint32_t>(shape.size()));
    for (int64_t size : shape) schema.add_global_dims(size);
  };
  v1::Layout layout;
  const auto add_shard = [&](const std::string& name, Shape global, Shape offset, Shape shape, char fill) {
    layout.add_shard_tensors(static_cast<uint32_t>(schema.names_size() - 1));
    for (int64_t at : offset) layout.add_shard_offsets(at);
    for (int64_t size : shape) layout.add_shard_shapes(size);
    Item item;
    item.stored.name = name;
    item.stored.dtype = DType::kFloat32;
    item.stored.global_shape = global;
    item.stored.box = {offset, shape};
    item.bytes.assign(item.stored.bytes(), fill);
    items_.push_back(std::move(item));
  };
  if (!options_.without_b) {
    add_tensor("b", {kBias});
    add_shard("b", {kBias}, {0}, {kBias}, options_.diverged ? 'x' : 'b');
  }
  const Shape global = {kRows * options_.world_size, kColumns};
  add_tensor("w", {global.begin(), global.end()});
  add_shard("w", global, {kRows * options_.rank, 0}, {kRows, kColumns}, static_cast<char>('0' + options_.rank));
  layout.set_tensor_schema(schema.SerializeAsString());
  v1::ObjectDeclaration& object = *layout.add_objects();
  object.set_name("meta");
  object.set_slot_bytes(4096);
  Item meta;
  meta.stored.name = "meta";
  meta.stored.dtype = DType::kUint8;
  meta.stored.global_shape = {4096};
  meta.stored.box = {{0}, {4096}};
  meta.stored.object = true;
  meta.bytes = kMeta;
  items_.push_back(std::move(meta));
  layout_ = layout.SerializeAsString();
  layout_digest_ = Digest(layout_);
}

std::string FakeState::BytesOf(uint32_t item) const {
  std::string bytes = items_[item].bytes;
  bytes.resize(items_[item].stored.bytes(), '\0');
  return bytes;
}

absl::Status FakeState::Write(v1::SaveState& save, const v1::SaveOrder& order, const std::string& bytes) const {
  v1::WritePlan plan;
  if (!plan.ParseFromString(bytes)) return MakeError(Reason::kInternal, "the plan cannot be parsed");
  CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(options_.root, false));
  CAIRN_RETURN_IF_ERROR(CheckAttemptOwner(*storage, order.directory(), order.attempt_nonce()));
  std::vector<bool> written(items_.size(), false);
  save.clear_result();
  for (const v1::PlannedFile& file : plan.files()) {
    std::vector<StoredItem> stored;
    std::vector<ItemChecksums> checksums;
    std::string data;
    v1::FileResult& result = *save.mutable_result()->add_files();
    for (uint32_t item : file.items()) {
      const std::string content = BytesOf(item);
      written[item] = true;
      ItemChecksums sums;
      sums.crc32c = Crc32c(content.data(), content.size());
      for (size_t at = 0; at < content.size(); at += kChecksumBlockBytes) {
        sums.blocks.push_back(Crc32c(content.data() + at, std::min<size_t>(kChecksumBlockBytes, content.size() - at)));
      }
      if (items_[item].stored.object) {
        sums.object_bytes = items_[item].bytes.size();
        result.add_object_sizes(sums.object_bytes);
      }
      result.add_item_checksums(sums.crc32c);
      stored.push_back(items_[item].stored);
      checksums.push_back(std::move(sums));
      data += content;
    }
    const BinIdentity identity = {options_.job,      order.step(),      order.attempt(), static_cast<int>(plan.rank()),
                                  plan.world_size(), plan.total_files()};
    const std::string header = RenderHeader(stored, checksums, identity);
    if (header.size() != file.header_bytes() || data.size() != file.data_bytes()) {
      return MakeError(Reason::kInternal,
                       absl::StrCat(file.name(), ": the plan's positions are not those of the file"));
    }
    result.set_header_crc32c(Crc32c(header.data(), header.size()));
    result.set_file_bytes(header.size() + data.size());
    const std::string path = absl::StrCat(options_.root, "/", order.directory(), "/", file.name(), ".safetensors");
    std::ofstream out(path, std::ios::binary);
    out << header << data;
    if (!out.flush()) return MakeError(Reason::kStorageError, absl::StrCat("cannot write ", path));
  }
  save.clear_replica_checksums();
  const bool check = order.check_replicas() && !options_.silent_on_tensors;
  save.set_all_replicas_checked(check);
  for (uint32_t item = 0; item < items_.size(); ++item) {
    const bool object = items_[item].stored.object;
    if (object ? options_.silent_on_objects : written[item] || !check) continue;
    const std::string content = BytesOf(item);
    v1::ReplicaChecksum& checksum = *save.add_replica_checksums();
    checksum.set_item(item);
    checksum.set_crc32c(Crc32c(content.data(), content.size()));
    if (object) checksum.set_object_bytes(items_[item].bytes.size());
  }
  return absl::OkStatus();
}

}  // namespace cairn::testing
