// Two roots in directories, and whole checkpoints in them, for tests of the mirror.
#ifndef CAIRN_STORE_MIRROR_TESTING_STORED_STEP_H_
#define CAIRN_STORE_MIRROR_TESTING_STORED_STEP_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"
#include "common/format/checkpoint_path.h"
#include "common/format/manifest.h"
#include "common/format/outcome.h"
#include "common/format/safetensors_header.h"
#include "store/posix/posix_storage.h"
#include "store/storage/storage.h"

namespace cairn {

class TwoRoots : public testing::Test {
 protected:
  static constexpr char kJob[] = "demo";

  TwoRoots() {
    std::string pattern = testing::TempDir() + "/mirror_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    root_ = *PosixStorage::Open(directory_ + "/root", true);
    mirror_ = *PosixStorage::Open(directory_ + "/mirror", true);
  }
  ~TwoRoots() override { std::filesystem::remove_all(directory_); }

  // Commits a checkpoint of two files at the root: one has "w" of `bytes`, the other one "u" and "v".
  void Commit(int64_t step, uint32_t attempt = 1, int64_t bytes = 1000) {
    Manifest manifest = NextManifest(step, attempt);
    AddTensor(manifest, "u", 5, 1, 0);
    AddTensor(manifest, "v", 77, 1, 1);
    AddTensor(manifest, "w", bytes, 0, 0);
    const std::string directory = AttemptDirectory(kJob, step, attempt);
    ASSERT_TRUE(root_->MakeDirectories(directory).ok());
    for (uint32_t file = 0; file < 2; ++file) WriteFile(manifest, file, directory);
    ASSERT_TRUE(manifest.PlaceItems().ok());
    ASSERT_TRUE(root_->PutIfAbsent(OutcomePath(kJob, step, attempt), EncodeOutcome(manifest)).ok());
  }
  // Puts only records, of steps without tensors, at both places, and fast: a power cut may take them.
  void CommitRecords(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      const std::string bytes = EncodeOutcome(NextManifest(step, 1));
      for (const std::string& path : {AtRoot(OutcomePath(kJob, step, 1)), AtMirror(OutcomePath(kJob, step, 1))}) {
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        std::ofstream(path, std::ios::binary) << bytes;
      }
    }
  }
  static std::string File(int64_t step, int rank = 0, uint32_t attempt = 1) {
    return AttemptDirectory(kJob, step, attempt) + "/" + BinName(rank, 0) + ".safetensors";
  }
  static std::string ReadWhole(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string AtRoot(const std::string& path) const { return directory_ + "/root/" + path; }
  std::string AtMirror(const std::string& path) const { return directory_ + "/mirror/" + path; }
  // Changes one byte.
  static void Damage(const std::string& path, int64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const int byte = file.get();
    file.seekp(offset);
    file.put(static_cast<char>(byte ^ 1));
  }
  // Returns whether all files of the step's commit have the same bytes at the mirror as at the root.
  bool IsCopied(int64_t step, uint32_t attempt = 1) const {
    const std::string record = ReadWhole(AtMirror(OutcomePath(kJob, step, attempt)));
    bool same = !record.empty() && record == ReadWhole(AtRoot(OutcomePath(kJob, step, attempt)));
    for (int rank = 0; rank < 2; ++rank) {
      const std::string path = File(step, rank, attempt);
      same = same && std::filesystem::exists(AtMirror(path)) && ReadWhole(AtMirror(path)) == ReadWhole(AtRoot(path));
    }
    return same;
  }

  std::string directory_;
  std::unique_ptr<PosixStorage> root_;
  std::unique_ptr<PosixStorage> mirror_;

 private:
  Manifest NextManifest(int64_t step, uint32_t attempt) {
    Manifest manifest;
    manifest.job = kJob;
    manifest.step = step;
    manifest.attempt = attempt;
    manifest.request_id = "request " + std::to_string(++requests_);
    manifest.world_size = 2;
    manifest.layout_digests = {std::string(32, 'd')};
    manifest.rank_layout = {0, 0};
    manifest.nodes = {"n"};
    manifest.rank_node = {0, 0};
    manifest.commit_time = absl::FromUnixSeconds(1000 + requests_);
    manifest.lineage.sequence = static_cast<uint64_t>(requests_);
    return manifest;
  }

  static void AddTensor(Manifest& manifest, const std::string& name, int64_t size, uint32_t file, uint32_t item) {
    const auto index = static_cast<uint32_t>(manifest.tensors.size());
    manifest.tensors.push_back({name, DType::kUint8, {size}, index, 1});
    ManifestShard shard;
    shard.tensor = index;
    shard.file = file;
    shard.item = item;
    shard.dims = static_cast<uint32_t>(manifest.dims.size());
    manifest.dims.insert(manifest.dims.end(), {0, size});
    manifest.shards.push_back(shard);
  }

  void WriteFile(Manifest& manifest, uint32_t file, const std::string& directory) {
    std::map<uint32_t, ManifestShard*> shards;  // by item
    for (ManifestShard& shard : manifest.shards) {
      if (shard.file == file) shards[shard.item] = &shard;
    }
    std::string data;
    std::vector<StoredItem> items;
    std::vector<ItemChecksums> checksums;
    for (auto& [number, shard] : shards) {
      items.push_back(manifest.item_of(*shard));
      std::string bytes(items.back().bytes(), '\0');
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251 + manifest.step);
      ItemChecksums one{.crc32c = Crc32c(bytes.data(), bytes.size())};
      for (uint64_t at = 0; at < bytes.size(); at += kChecksumBlockBytes) {
        one.blocks.push_back(Crc32c(bytes.data() + at, std::min<uint64_t>(kChecksumBlockBytes, bytes.size() - at)));
      }
      shard->crc32c = one.crc32c;
      checksums.push_back(one);
      data += bytes;
    }
    const std::string header = RenderHeader(items, checksums);
    manifest.files.push_back({.name = BinName(static_cast<int>(file), 0),
                              .rank = static_cast<int>(file),
                              .header_bytes = header.size(),
                              .data_bytes = data.size(),
                              .header_crc32c = Crc32c(header.data(), header.size())});
    std::ofstream out(AtRoot(directory + "/" + manifest.files.back().name + ".safetensors"), std::ios::binary);
    out << header << data;
  }

  int64_t requests_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_TESTING_STORED_STEP_H_
