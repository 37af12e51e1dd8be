#include "foreign/read/source/tensor_tree.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/testing/pickle_writer.h"

namespace cairn {
namespace {

using pickle_writer::Attributes;
using pickle_writer::Call;
using pickle_writer::Dict;
using pickle_writer::Global;
using pickle_writer::Int;
using pickle_writer::List;
using pickle_writer::None;
using pickle_writer::Pickle;
using pickle_writer::Text;
using pickle_writer::Tuple;

constexpr uint64_t kFileBytes = 4096;

// Here a tensor is a tuple of its offset and length: so many bytes of a file.
std::string Tensor(int64_t offset, int64_t length) { return Tuple({Int(offset), Int(length)}); }

class TensorTreeTest : public testing::Test {
 protected:
  TensorTreeTest() : path_(testing::TempDir() + "/tree-" + RandomToken(6)) {
    std::ofstream(path_) << std::string(kFileBytes, 'x');
  }
  ~TensorTreeTest() override { std::filesystem::remove(path_); }

  absl::StatusOr<Manifest> Read(const std::string& value) const {
    left_out_.clear();
    const std::string pickle = Pickle(value);
    const auto document = ReadPickle(pickle, "pickle", {});
    EXPECT_TRUE(document.ok()) << document.status();
    return ReadTensorTree(
        "test", *ForeignFile::Open(path_), *document,
        [&](PickleValue each) -> absl::StatusOr<std::optional<StridedTensor>> {
          const auto numbers = document->Elements(each, 2);
          if (each.kind() != PickleKind::kTuple || document->Size(each) != 2) return std::nullopt;
          StridedTensor tensor;
          tensor.dtype = DType::kUint8;
          tensor.offset = static_cast<uint64_t>(*document->Int(numbers[0]));
          tensor.shape = {*document->Int(numbers[1])};
          tensor.strides = {1};
          if (tensor.offset == 13) return MakeError(Reason::kBadForeignFile, "unlucky");
          return tensor;
        },
        &left_out_);
  }
  void ExpectRefused(const std::string& value, Reason reason, const std::string& said) const {
    const absl::Status status = Read(value).status();
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_NE(status.message().find(said), absl::string_view::npos) << status;
  }

  const std::string path_;
  mutable std::vector<std::string> left_out_;
};

TEST_F(TensorTreeTest, Tensors_OfDictsAndLists_AreNamedByTheirWay) {
  const auto manifest = Read(Attributes({{"w", Tensor(0, 10)},
                                         {"layers", List({Attributes({{"b", Tensor(10, 5)}}), Int(3), Tensor(20, 4)})},
                                         {"state", Dict({{Int(7), Tensor(100, 1)}})},
                                         {"step", Int(3)},
                                         {"name", Text("x")}}));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::vector<std::pair<std::string, uint64_t>> found;
  for (const ManifestTensor& tensor : manifest->tensors) {
    found.emplace_back(tensor.name, manifest->shards[tensor.first_shard].file_offset);
  }
  EXPECT_EQ(found, (std::vector<std::pair<std::string, uint64_t>>{
                       {"layers.0.b", 10}, {"layers.2", 20}, {"state.7", 100}, {"w", 0}}));
  EXPECT_EQ(left_out_, (std::vector<std::string>{"layers.1 (an int)", "step (an int)", "name (a str)"}));
}

TEST_F(TensorTreeTest, Tensors_InTuplesAndDefaultDicts_AreFoundToo) {
  const std::string state = Call(Global("collections", "defaultdict"), {Global("builtins", "dict")}) + "(" + Int(0) +
                            Attributes({{"exp_avg", Tensor(30, 3)}}) + "u";
  const auto manifest = Read(Attributes({{"pair", Tuple({Tensor(0, 1), Tensor(1, 1), Int(3)})}, {"state", state}}));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::vector<std::string> names;
  for (const ManifestTensor& tensor : manifest->tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"pair.0", "pair.1", "state.0.exp_avg"}));
  EXPECT_EQ(left_out_, std::vector<std::string>{"pair.2 (an int)"});
}

TEST_F(TensorTreeTest, Values_ThatNobodyKnows_AreNamedWithWhatTheyAre) {
  const std::string sparse = Call(Global("torch._utils", "_rebuild_sparse_tensor"), {Int(1)});
  const auto manifest = Read(Dict({{Text("w"), Tensor(0, 10)}, {Text("sparse"), sparse}, {None(), Tensor(10, 1)}}));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->tensors.size(), 1u);
  EXPECT_EQ(left_out_, (std::vector<std::string>{"sparse (torch._utils._rebuild_sparse_tensor)", "None (a tuple)"}));
}

TEST_F(TensorTreeTest, Tensors_AtOnePlace_AreAliases) {
  const auto manifest = Read(
      Attributes({{"head", Tensor(0, 10)}, {"embedding", Tensor(0, 10)}, {"e", Tensor(0, 0)}, {"f", Tensor(0, 0)}}));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->aliases.size(), 1u);
  EXPECT_EQ(manifest->aliases[0], std::pair(std::string("head"), std::string("embedding")));
  EXPECT_EQ(manifest->tensors.size(), 3u) << "what is empty shares nothing";
}

TEST_F(TensorTreeTest, Tensors_ThatShareAPart_EachHaveAllOfTheirBytes) {
  const auto manifest = Read(Attributes({{"a", Tensor(0, 10)}, {"b", Tensor(5, 10)}, {"c", Tensor(0, 4096)}}));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::vector<std::pair<uint64_t, uint64_t>> found;
  for (const ManifestShard& shard : manifest->shards) found.emplace_back(shard.file_offset, shard.bytes);
  EXPECT_EQ(found, (std::vector<std::pair<uint64_t, uint64_t>>{{0, 10}, {5, 10}, {0, 4096}}));
}

TEST_F(TensorTreeTest, Tensors_ThatLeaveTheFile_AreRefused) {
  ExpectRefused(Attributes({{"a", Tensor(4090, 10)}}), Reason::kFileTruncated, "'a' takes 10 bytes at 4090");
}

TEST_F(TensorTreeTest, Names_ThatNobodyCanHave_AreRefused) {
  ExpectRefused(Attributes({{"a.b", Tensor(0, 1)}, {"a", Attributes({{"b", Tensor(1, 1)}})}}), Reason::kNameCollision,
                "'a.b'");
  ExpectRefused(Attributes({{"", Tensor(0, 1)}}), Reason::kBadName, "");
  ExpectRefused(Attributes({{"a\n", Tensor(0, 1)}}), Reason::kBadName, "");
}

TEST_F(TensorTreeTest, Value_ThatIsNoDictOrHasNoEnd_IsRefused) {
  ExpectRefused(Int(3), Reason::kUnsupported, "not a dict");
  // A list that holds itself.
  ExpectRefused(Attributes({{"l", std::string("]q\0h\0a", 6)}}), Reason::kBadForeignFile, "in a circle");
  std::string deep = Tensor(0, 1);
  for (int i = 0; i < 250; ++i) deep = List({deep});
  ExpectRefused(Attributes({{"l", deep}}), Reason::kBadForeignFile, "nested too deeply");
}

// A value, and `times` more of it that the pickle recalls.
std::string Recalled(const std::string& value, int times, int memo) {
  const std::string number(1, static_cast<char>(memo));
  std::string values = value + "q" + number;
  for (int i = 0; i < times; ++i) values += "h" + number;
  return values;
}

TEST_F(TensorTreeTest, Parts_ThatAreSharedTooOften_AreRefusedSoon) {
  std::string lists = List({Int(1)});
  for (int level = 0; level < 30; ++level) lists = List({Recalled(lists, 1, level)});
  std::string numbers;
  for (int i = 0; i < 10'000; ++i) numbers += None();
  const std::string names = Dict({{Recalled(Text(std::string(1 << 20, 'k')), 0, 0), List({numbers})}});
  ExpectRefused(Attributes({{"lists", lists}}), Reason::kBadForeignFile, "the same parts too often");
  ExpectRefused(Attributes({{"values", List({Recalled(List({numbers}), 10'000, 0)})}}), Reason::kBadForeignFile,
                "the same parts too often");
  ExpectRefused(names, Reason::kBadForeignFile, "the same parts too often");
  EXPECT_TRUE(Read(Attributes({{"w", List({Recalled(List({Tensor(0, 8), Text("tied")}), 100, 0)})}})).ok());
}

TEST_F(TensorTreeTest, Tensor_ThatCannotBeRead_IsNamed) {
  ExpectRefused(Attributes({{"a", List({Tensor(13, 1)})}}), Reason::kBadForeignFile, "'a.0': unlucky");
}

}  // namespace
}  // namespace cairn
