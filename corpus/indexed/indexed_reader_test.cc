#include "corpus/indexed/indexed_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/status/reason.h"
#include "corpus/indexed/indexed_merge.h"
#include "corpus/indexed/indexed_writer.h"
#include "corpus/io/testing/killed_at_name.h"
#include "corpus/io/testing/memory_stores.h"

namespace cairn::corpus {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteAll(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

using Document = std::vector<std::vector<uint32_t>>;

class IndexedReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/reader-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  void Make(const std::string& prefix, const std::vector<Document>& documents, IndexedWriter::Options options = {}) {
    auto writer = IndexedWriter::Create(prefix, options);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Document& document : documents) {
      std::vector<uint32_t> tokens;
      std::vector<int32_t> lengths;
      std::vector<int8_t> modes;
      for (const auto& sequence : document) {
        tokens.insert(tokens.end(), sequence.begin(), sequence.end());
        lengths.push_back(static_cast<int32_t>(sequence.size()));
        if (options.multimodal) modes.push_back(static_cast<int8_t>(sequence.size() % 2));
      }
      ASSERT_TRUE((*writer)->AddDocument(tokens, lengths, modes).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  // Checks that Open or Verify refuses the pair as damaged.
  testing::AssertionResult Refused(const std::string& prefix) {
    const auto reader = IndexedReader::Open(prefix);
    const absl::Status status = reader.ok() ? VerifyIndexed(**reader, true).status() : reader.status();
    if (status.ok()) return testing::AssertionFailure() << "accepted";
    if (!HasReason(status, Reason::kIndexCorrupt)) return testing::AssertionFailure() << status;
    return testing::AssertionSuccess();
  }

  // Returns the tokens of each sequence as they lie in .bin.
  std::vector<std::string> SequencesOf(const IndexedReader& reader) const {
    const std::string bin = ReadAll(reader.prefix() + ".bin");
    std::vector<std::string> sequences;
    const auto take = [&](const int32_t* lengths, const int64_t* pointers, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        sequences.push_back(bin.substr(static_cast<size_t>(pointers[i]), 2 * static_cast<size_t>(lengths[i])));
      }
      return absl::OkStatus();
    };
    EXPECT_TRUE(reader.VisitLengthsAndPointers(take).ok());
    return sequences;
  }

  std::string directory_;
};

const std::vector<Document> kDocuments = {{{1, 2, 3}, {4, 5}}, {}, {{6}}, {{7, 8, 9, 10}}, {{}}, {}};

TEST_F(IndexedReaderTest, Read_WrittenPair_ReadsBack) {
  Make(Path("p"), kDocuments);
  const auto reader = IndexedReader::Open(Path("p"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->documents(), 6u);
  EXPECT_EQ((*reader)->header().sequences, 5u);
  EXPECT_EQ((*reader)->tokens(), 10u);
  EXPECT_FALSE((*reader)->multimodal());
  EXPECT_EQ(SequencesOf(**reader),
            (std::vector<std::string>{std::string("\1\0\2\0\3\0", 6), std::string("\4\0\5\0", 4),
                                      std::string("\6\0", 2), std::string("\7\0\10\0\11\0\12\0", 8), ""}));
  const auto statistics = VerifyIndexed(**reader, true);
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_EQ(statistics->empty_documents, 2u);
  EXPECT_EQ(statistics->longest_sequence, 4u);
}

TEST_F(IndexedReaderTest, Verify_EveryTruncation_IsFound) {
  for (const bool multimodal : {false, true}) {
    const std::string good = Path("good");
    Make(good, kDocuments, {IndexedDtype::kUint16, multimodal});
    for (const std::string extension : {".bin", ".idx"}) {
      const std::string bytes = ReadAll(good + extension);
      for (size_t size = 0; size < bytes.size(); ++size) {
        std::filesystem::copy_file(good + ".bin", Path("bad.bin"), std::filesystem::copy_options::overwrite_existing);
        std::filesystem::copy_file(good + ".idx", Path("bad.idx"), std::filesystem::copy_options::overwrite_existing);
        WriteAll(Path("bad") + extension, bytes.substr(0, size));
        // A multimodal index without its modes is a sound index of the other kind, and nothing in the file tells the
        // two apart.
        if (multimodal && extension == ".idx" && size + 5 == bytes.size()) continue;
        EXPECT_TRUE(Refused(Path("bad"))) << extension << " of " << size;
      }
    }
  }
}

TEST_F(IndexedReaderTest, Verify_EveryFlippedHeaderOrPointerBit_IsFound) {
  Make(Path("good"), kDocuments);
  const std::string bytes = ReadAll(Path("good.idx"));
  std::filesystem::copy_file(Path("good.bin"), Path("bad.bin"));
  const size_t documents = kIndexHeaderBytes + 12 * 5;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    // Inner document indices that still ascend cannot be told from the true ones.
    if (bit >= 8 * (documents + 8) && bit < 8 * (bytes.size() - 8)) continue;
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    WriteAll(Path("bad.idx"), flipped);
    // Only uint16 and int16 have the same size, and one bit cannot change code 8 to 3.
    EXPECT_TRUE(Refused(Path("bad"))) << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST_F(IndexedReaderTest, Verify_RandomBytes_NeverCrash) {
  Make(Path("f"), kDocuments);
  const std::string bytes = ReadAll(Path("f.idx"));
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string mutated = bytes;
    for (uint32_t i = 0; i < 1 + random() % 8; ++i) mutated[random() % mutated.size()] = static_cast<char>(random());
    if (random() % 4 == 0) mutated.resize(random() % (mutated.size() + 40));
    WriteAll(Path("f.idx"), mutated);
    const auto reader = IndexedReader::Open(Path("f"));
    if (!reader.ok()) continue;
    VerifyIndexed(**reader, true).status().IgnoreError();
  }
}

TEST_F(IndexedReaderTest, Open_SizesBeyondMemory_AreRefusedBeforeAllocation) {
  WriteAll(Path("h.bin"), "");
  WriteAll(Path("h.idx"), EncodeIndexHeader({IndexedDtype::kInt32, UINT64_MAX / 12, UINT64_MAX / 8}) + "xx");
  EXPECT_TRUE(Refused(Path("h")));
  WriteAll(Path("h.idx"), EncodeIndexHeader({IndexedDtype::kInt32, 0, 0}));
  EXPECT_TRUE(Refused(Path("h")));
}

TEST_F(IndexedReaderTest, Open_MissingFile_IsUnreadable) {
  EXPECT_TRUE(HasReason(IndexedReader::Open(Path("none")).status(), Reason::kInputUnreadable));
}

TEST_F(IndexedReaderTest, Open_FifoOrDirectory_IsRefusedAtOnce) {
  for (const std::string extension : {".bin", ".idx"}) {
    for (const std::string kind : {"a FIFO", "a directory"}) {
      Make(Path("p"), kDocuments);
      std::filesystem::remove(Path("p") + extension);
      if (kind == "a FIFO") {
        ASSERT_EQ(mkfifo((Path("p") + extension).c_str(), 0600), 0);
      } else {
        std::filesystem::create_directory(Path("p") + extension);
      }
      const absl::Status status = IndexedReader::Open(Path("p")).status();
      EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable)) << status;
      EXPECT_EQ(std::string(status.message()), Path("p") + extension + " is " + kind + ", no regular file");
      std::filesystem::remove(Path("p") + extension);
    }
  }
}

TEST_F(IndexedReaderTest, Merge_SeveralPairs_EqualsOneWriter) {
  std::mt19937 random(11);
  std::vector<Document> all;
  std::filesystem::create_directory(Path("in"));
  // In Python's order, capitals come first, and '0' comes before '_'.
  for (const std::string name : {"Part", "part10_", "part1_", "part2_"}) {
    std::vector<Document> documents(name == "part1_" ? 0 : 1 + random() % 2000);
    for (Document& document : documents) {
      document.resize(random() % 4);
      for (auto& sequence : document) {
        sequence.resize(random() % 30);
        for (uint32_t& token : sequence) token = random() % 65536;
      }
    }
    Make(Path("in/" + name), documents);
    all.insert(all.end(), documents.begin(), documents.end());
  }
  const auto prefixes = ListIndexed(Path("in"));
  ASSERT_TRUE(prefixes.ok());
  const std::atomic<bool> stop{false};
  const auto report = MergeIndexed(*prefixes, Path("merged"), stop, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->documents, all.size());
  Make(Path("expected"), all);
  EXPECT_TRUE(ReadAll(Path("merged.bin")) == ReadAll(Path("expected.bin")));
  EXPECT_TRUE(ReadAll(Path("merged.idx")) == ReadAll(Path("expected.idx")));
}

TEST_F(IndexedReaderTest, Objects_AreWrittenMergedAndVerifiedAsFilesAre) {
  MemoryStores stores;
  std::filesystem::create_directory(Path("in"));
  for (const char* name : {"b", "a"}) {
    Make(Path(std::string("in/") + name), kDocuments);
    Make(std::string("s3://bucket/in/") + name, kDocuments);
    for (const char* ending : {".bin", ".idx"}) {
      EXPECT_EQ(stores.Get(absl::StrCat("s3://bucket/in/", name, ending)),
                ReadAll(absl::StrCat(Path("in/"), name, ending)));
    }
  }
  const std::atomic<bool> stop{false};
  ASSERT_TRUE(MergeIndexed(*ListIndexed(Path("in")), Path("all"), stop, nullptr).ok());
  // From files and from objects to objects, and from objects to files.
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{Path("in"), "s3://bucket/x/all"},
                                                        {"s3://bucket/in/", "s3://bucket/x/all"},
                                                        {"s3://bucket/in", Path("x")}}) {
    const auto prefixes = ListIndexed(from);
    ASSERT_TRUE(prefixes.ok()) << prefixes.status();
    const auto report = MergeIndexed(*prefixes, to, stop, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    for (const char* ending : {".bin", ".idx"}) {
      EXPECT_EQ(to.starts_with("s3://") ? stores.Get(to + ending) : ReadAll(to + ending),
                ReadAll(Path("all") + ending));
    }
  }
  // The second time, the old index went first.
  const std::vector<std::string> changes = stores.changes();
  EXPECT_THAT(std::vector<std::string>(changes.end() - 3, changes.end()),
              testing::ElementsAre("-s3://bucket/x/all.idx", "+s3://bucket/x/all.bin", "+s3://bucket/x/all.idx"));
  const auto reader = IndexedReader::Open("s3://bucket/in/a");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(VerifyIndexed(**reader, true).ok());
  EXPECT_TRUE(HasReason(MergeIndexed(*ListIndexed("s3://bucket/in"), "s3://bucket/in/a", stop, nullptr).status(),
                        Reason::kBadRequest));
  stores.Put("s3://bucket/cut/a.idx", stores.Get("s3://bucket/in/a.idx").substr(0, 40));
  stores.Put("s3://bucket/cut/a.bin", stores.Get("s3://bucket/in/a.bin"));
  EXPECT_TRUE(HasReason(IndexedReader::Open("s3://bucket/cut/a").status(), Reason::kIndexCorrupt));
  EXPECT_TRUE(HasReason(IndexedReader::Open("s3://bucket/cut/b").status(), Reason::kInputUnreadable));
  EXPECT_EQ(stores.unfinished(), 0);
}

TEST_F(IndexedReaderTest, Merge_UnlikePairs_IsRefusedAndLeavesNothing) {
  std::filesystem::create_directory(Path("in"));
  Make(Path("in/a"), kDocuments);
  Make(Path("in/b"), kDocuments, {IndexedDtype::kInt32, false});
  const std::atomic<bool> stop{false};
  const auto prefixes = ListIndexed(Path("in"));
  EXPECT_TRUE(HasReason(MergeIndexed(*prefixes, Path("m"), stop, nullptr).status(), Reason::kBadRequest));
  Make(Path("in/b"), kDocuments, {IndexedDtype::kUint16, true});
  EXPECT_TRUE(HasReason(MergeIndexed(*prefixes, Path("m"), stop, nullptr).status(), Reason::kBadRequest));
  WriteAll(Path("in/b.idx"), ReadAll(Path("in/b.idx")).substr(0, 60));
  EXPECT_TRUE(HasReason(MergeIndexed(*prefixes, Path("m"), stop, nullptr).status(), Reason::kIndexCorrupt));
  std::filesystem::remove(Path("in/b.idx"));
  const absl::Status lonely = ListIndexed(Path("in")).status();
  EXPECT_THAT(std::string(lonely.message()), testing::HasSubstr("b.bin"));
  EXPECT_TRUE(HasReason(MergeIndexed({}, Path("m"), stop, nullptr).status(), Reason::kBadRequest));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 0u);
}

TEST_F(IndexedReaderTest, Merge_OutputAmongInputs_IsRefusedAndNamed) {
  std::filesystem::create_directory(Path("in"));
  Make(Path("in/a"), kDocuments);
  const std::atomic<bool> stop{false};
  ASSERT_TRUE(MergeIndexed(*ListIndexed(Path("in")), Path("in/z"), stop, nullptr).ok());
  const std::string bin = ReadAll(Path("in/z.bin")), idx = ReadAll(Path("in/z.idx"));
  // The second merge finds the output of the first one among its inputs. Another way to write its path does not help.
  for (const std::string& output : {Path("in/z"), Path("in/../in/z"), Path("in/a")}) {
    const absl::Status status = MergeIndexed(*ListIndexed(Path("in")), output, stop, nullptr).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(output + ".bin is among the inputs"));
    EXPECT_EQ(ReadAll(Path("in/z.bin")), bin);
    EXPECT_EQ(ReadAll(Path("in/z.idx")), idx);
  }
  for (const std::string& output : {std::string(), Path("in/")}) {
    const absl::Status status = MergeIndexed({Path("in/a")}, output, stop, nullptr).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("\"" + output + "\" has no name"));
  }
  EXPECT_FALSE(std::filesystem::exists(Path("in/.bin")));
}

TEST_F(IndexedReaderTest, Merge_Interrupted_LeavesNothing) {
  std::filesystem::create_directory(Path("in"));
  Make(Path("in/a"), kDocuments);
  const std::atomic<bool> stop{true};
  EXPECT_TRUE(HasReason(MergeIndexed({Path("in/a")}, Path("m"), stop, nullptr).status(), Reason::kInterrupted));
  EXPECT_FALSE(std::filesystem::exists(Path("m.bin")));
}

// Replaces an old pair by a new one of as many bytes, and dies at every change of a name in turn. ListIndexed and
// IndexedReader must refuse what is left, unless it is the old pair or the new one.
void ExpectNoMixtureAfterKill(const std::string& directory, const std::function<void()>& make_old,
                              const std::function<void()>& make_new) {
  const std::string pair = directory + "/pair";
  const auto both = [&] { return ReadAll(pair + ".bin") + ReadAll(pair + ".idx"); };
  make_new();
  const std::string whole_new = both();
  make_old();
  const std::string whole_old = both();
  ASSERT_EQ(whole_old.size(), whole_new.size());
  int change = 1;
  for (; KilledAtName(change, make_new); ++change) {
    const auto reader = IndexedReader::Open(pair);
    if (reader.ok()) {
      EXPECT_TRUE(both() == whole_old || both() == whole_new) << "a mixture at change " << change;
    } else {
      EXPECT_TRUE(HasReason(reader.status(), Reason::kInputUnreadable)) << reader.status();
      EXPECT_THAT(std::string(reader.status().message()), testing::HasSubstr("pair.idx"));
      EXPECT_THAT(std::string(ListIndexed(directory).status().message()), testing::HasSubstr("pair.bin"));
    }
    make_old();
  }
  EXPECT_EQ(change, 4) << ".idx goes, .bin and .idx come";
  EXPECT_TRUE(both() == whole_new);
}

TEST_F(IndexedReaderTest, Write_KilledAtEveryChangeOfAName_LeavesNoMixture) {
  std::filesystem::create_directory(Path("out"));
  ExpectNoMixtureAfterKill(
      Path("out"), [&] { Make(Path("out/pair"), {{{1, 2, 3}}, {{4}}}); },
      [&] { Make(Path("out/pair"), {{{5}}, {{6, 7, 8}}}); });
}

TEST_F(IndexedReaderTest, Merge_KilledAtEveryChangeOfAName_LeavesNoMixture) {
  for (const char* name : {"out", "old", "new"}) std::filesystem::create_directory(Path(name));
  Make(Path("old/a"), {{{1, 2, 3}}, {{4}}});
  Make(Path("new/a"), {{{5}}, {{6, 7, 8}}});
  const std::atomic<bool> stop{false};
  const auto merge = [&](const std::string& from) {
    MergeIndexed({Path(from)}, Path("out/pair"), stop, nullptr).status().IgnoreError();
  };
  ExpectNoMixtureAfterKill(Path("out"), [&] { merge("old/a"); }, [&] { merge("new/a"); });
}

}  // namespace
}  // namespace cairn::corpus
