// Measures an encoder in this process, so that starting, reading and writing do not count.
//
//   encode_benchmark TOKENIZER TEXT [--documents BYTES] [--threads N] [--rounds N] [--ids FILE] [--split RULE]
//                    [--profile unseen|again]
//
// The text is cut into documents, and those into six parts. It prints a line of JSON with CPU seconds of all threads:
//   first: of a new encoder for the whole text
//   unseen: of an encoder that has seen the first part, for the other five, in each once, as a server that meets new
//   text again: of an encoder that has seen all of the text split: of the pre-tokenizer alone, if its rule is named
//   copy: of copying the text
// --ids writes the ids of all documents, 32 bits each. With several threads each takes the next document. --profile
// does little but what one figure measures, so that a profiler sees only that.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "corpus/bpe/pretokenizer.h"
#include "corpus/pipeline/load_tokenizer.h"

namespace cairn::corpus {
namespace {

constexpr size_t kParts = 6;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

using Documents = std::vector<std::string_view>;

// Cuts between characters, so that each part is text of its own.
Documents Cut(std::string_view text, size_t bytes) {
  Documents documents;
  for (size_t from = 0; from < text.size();) {
    size_t end = std::min(from + bytes, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    documents.push_back(text.substr(from, end - from));
    from = end;
  }
  return documents;
}

// One encoder for each thread.
class Team {
 public:
  Team(const Tokenizer& tokenizer, size_t threads) : ids_(threads) {
    for (size_t i = 0; i < threads; ++i) encoders_.push_back(tokenizer.NewEncoder());
  }

  // Returns CPU seconds of all threads.
  double Encode(const Documents& documents, size_t from, size_t to, std::vector<uint32_t>* all = nullptr) {
    std::atomic<size_t> next = from;
    const auto work = [&](size_t thread) {
      std::vector<uint32_t>& ids = ids_[thread];
      for (size_t i; (i = next++) < to;) {
        ids.clear();
        if (!encoders_[thread]->Encode(documents[i], ids).ok()) Fail("a document cannot be encoded");
        if (all != nullptr) all->insert(all->end(), ids.begin(), ids.end());
      }
    };
    const double begin = CpuSeconds();
    if (encoders_.size() == 1) {
      work(0);
      return CpuSeconds() - begin;
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < encoders_.size(); ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
    return CpuSeconds() - begin;
  }

 private:
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<std::vector<uint32_t>> ids_;
};

double SplitSeconds(const std::string& rule, const Documents& documents) {
  const auto pretokenizer = Pretokenizer::NamedOrPattern(rule);
  if (!pretokenizer.ok()) Fail(pretokenizer.status().ToString());
  Splitter splitter(*pretokenizer);
  std::array<uint32_t, 512> ends;
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = CpuSeconds();
    for (const std::string_view document : documents) {
      for (size_t from = 0; from < document.size();) from = ends[*splitter.Split(document, from, ends) - 1];
    }
    least = std::min(least, CpuSeconds() - begin);
  }
  return least;
}

double CopySeconds(const std::string& text) {
  std::string copy(text.size(), 'x');
  const double begin = CpuSeconds();
  for (int i = 0; i < 10; ++i) {
    std::memcpy(copy.data(), text.data(), text.size());
    __asm__ volatile("" : : "r"(copy.data()) : "memory");
  }
  return (CpuSeconds() - begin) / 10;
}

int Main(int argc, char** argv) {
  if (argc < 3)
    Fail(
        "usage: encode_benchmark TOKENIZER TEXT [--documents BYTES] [--threads N] [--rounds N] [--ids FILE] [--split "
        "RULE] [--profile unseen|again]");
  size_t bytes = 10240, threads = 1, rounds = 1;
  std::string ids_file, rule, profile;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--documents") bytes = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--threads") threads = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--rounds") rounds = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--ids") ids_file = argv[i + 1];
    if (name == "--split") rule = argv[i + 1];
    if (name == "--profile") profile = argv[i + 1];
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const double before = CpuSeconds();
  const auto tokenizer = LoadTokenizer(argv[1]);
  if (!tokenizer.ok()) Fail(tokenizer.status().ToString());
  const double load = CpuSeconds() - before;
  const Documents documents = Cut(text, bytes);

  double first = 1e9, again = 1e9, unseen = 1e9;  // the least of several rounds, each with new encoders
  const size_t part = documents.size() / kParts;
  for (size_t round = 0; round < rounds; ++round) {
    if (profile != "unseen") {
      Team fresh(**tokenizer, threads);
      first = std::min(first, fresh.Encode(documents, 0, documents.size()));
      for (int i = 0; i < 2; ++i) again = std::min(again, fresh.Encode(documents, 0, documents.size()));
    }
    if (profile == "again") continue;
    Team warmed(**tokenizer, threads);
    warmed.Encode(documents, 0, part);
    std::vector<double> per_byte;
    for (size_t i = 1; i < kParts; ++i) {
      size_t size = 0;
      for (size_t k = i * part; k < (i + 1) * part; ++k) size += documents[k].size();
      per_byte.push_back(warmed.Encode(documents, i * part, (i + 1) * part) / static_cast<double>(size));
    }
    std::sort(per_byte.begin(), per_byte.end());
    unseen = std::min(unseen, per_byte[per_byte.size() / 2] * static_cast<double>(text.size()));
  }
  std::vector<uint32_t> ids;
  Team(**tokenizer, 1).Encode(documents, 0, documents.size(), &ids);
  if (!ids_file.empty()) {
    std::ofstream out(ids_file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(uint32_t)));
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      R"({"bytes": %zu, "tokens": %zu, "load": %.4f, "first": %.5f, "unseen": %.5f, "again": %.5f, "split": %.5f, "copy": %.5f, "rss_mib": %.1f})"
      "\n",
      text.size(), ids.size(), load, first, unseen, again, rule.empty() ? 0.0 : SplitSeconds(rule, documents),
      CopySeconds(text), static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}

}  // namespace
}  // namespace cairn::corpus

int main(int argc, char** argv) { return cairn::corpus::Main(argc, argv); }
