#include "corpus/sampler/gpt_dataset.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/huge_pages.h"
#include "corpus/sampler/random_state.h"

namespace cairn::corpus {
namespace {

constexpr uint64_t kExtraToken = 1;  // a sample's labels are its tokens one place later
constexpr uint64_t kMostTokens = uint64_t{1} << 62;
constexpr size_t kPiece = 1 << 14;  // values
constexpr size_t kAhead = 64;       // documents whose lengths are fetched early

bool SamplesNeed64Bits(const GptDatasetPlan& plan) { return plan.samples >= UINT32_MAX - 1; }
bool PlacesNeed64Bits(const GptDatasetPlan& plan) {
  return plan.epochs * plan.documents > std::numeric_limits<int32_t>::max();
}

// Several epochs would take more memory for it than a table of all lengths, which is there anyway.
bool LengthsTravel(const GptDatasetPlan& plan) { return plan.epochs == 1 && !PlacesNeed64Bits(plan); }

absl::Status Interrupted() { return MakeError(Reason::kInterrupted, "interrupted"); }

// Memory that has no values yet.
class RawMemory {
 public:
  explicit RawMemory(size_t bytes) : bytes_(bytes), data_(HugePageAllocator<std::byte>().allocate(bytes)) {}
  RawMemory(const RawMemory&) = delete;
  RawMemory& operator=(const RawMemory&) = delete;
  ~RawMemory() { HugePageAllocator<std::byte>().deallocate(data_, bytes_); }

  std::byte* data() const { return data_; }

 private:
  const size_t bytes_;
  std::byte* const data_;
};

class Builder {
 public:
  Builder(const GptDatasetPlan& plan, std::span<const int32_t> lengths, uint32_t seed, const CacheFiles& files,
          const std::atomic<bool>& stop, std::atomic<uint64_t>& done)
      : plan_(plan),
        lengths_(lengths),
        random_(seed),
        files_(files),
        stop_(stop),
        done_(done),
        memory_(plan.array_bytes()) {}

  absl::Status Run() {
    CAIRN_RETURN_IF_ERROR(LengthsTravel(plan_)      ? (WriteDocuments<int64_t, int32_t>())
                          : PlacesNeed64Bits(plan_) ? (WriteDocuments<uint32_t, int64_t>())
                                                    : (WriteDocuments<uint32_t, int32_t>()));
    CAIRN_RETURN_IF_ERROR(SamplesNeed64Bits(plan_) ? WriteShuffle<int64_t>() : WriteShuffle<uint32_t>());
    return files_.Publish(std::move(arrays_));
  }

 private:
  absl::StatusOr<NpyFile> CreateArray(const std::string& name) {
    return files_.CreateArray(name, plan_.Headers().at(name));
  }

  // Returns uninitialized numbers, which are valid until the next call. Both indices lie in the same memory in turn.
  template <typename Number>
  std::span<Number> Numbers(size_t count) {
    return {reinterpret_cast<Number*>(memory_.data()), count};
  }

  // A document of the order: its number, and in 64 bits also its length above it. A length that travels with its
  // document through the shuffle need not be looked up at random afterwards.
  template <typename Document>
  Document DocumentOf(size_t i) const {
    Document document = static_cast<Document>(plan_.first_document + i);
    if constexpr (sizeof(Document) == 8) document |= static_cast<Document>(lengths_[i]) << 32;
    return document;
  }

  // Fills numbers and lengths of the first documents of `order`, as many as fit. Where lengths are looked up, this loop
  // waits for memory alone; a wrong guess of a branch would stop the fetches that are under way.
  template <typename Document>
  void Unpack(std::span<const Document> order, std::span<uint32_t> numbers, std::span<int32_t> lengths) const {
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<uint32_t>(order[i]);
      if constexpr (sizeof(Document) == 8) {
        lengths[i] = static_cast<int32_t>(order[i] >> 32);
      } else {
        __builtin_prefetch(&lengths_[order[std::min(i + kAhead, order.size() - 1)] - plan_.first_document], 0, 2);
        lengths[i] = lengths_[order[i] - plan_.first_document];
      }
    }
  }

  // Writes document_index and sample_index, whose numbers are Places.
  template <typename Document, typename Place>
  absl::Status WriteDocuments() {
    const size_t all = plan_.epochs * plan_.documents;
    const std::span<Document> order = Numbers<Document>(all);
    for (size_t begin = 0; begin < all; begin += plan_.documents) {
      for (size_t i = 0; i < plan_.documents; ++i) order[begin + i] = DocumentOf<Document>(i);
    }
    const size_t separate = plan_.last_epoch_is_separate ? plan_.documents : 0;
    if (!random_.Shuffle(order.first(all - separate), stop_, &done_)) return Interrupted();
    if (!random_.Shuffle(order.last(separate), stop_, &done_)) return Interrupted();

    CAIRN_ASSIGN_OR_RETURN(NpyFile document_index, CreateArray("document_index"));
    CAIRN_ASSIGN_OR_RETURN(NpyFile sample_index, CreateArray("sample_index"));
    std::vector<std::array<Place, 2>> begins(kPiece + 1);  // place in `documents`, token there
    std::vector<uint32_t> numbers(kPiece);
    std::vector<int32_t> lengths(kPiece);
    size_t count = 0;
    begins[count++] = {0, 0};
    uint64_t tokens = 0;  // before the document
    uint64_t begin_of_next = plan_.sequence_length;
    for (size_t piece = 0; piece < all; piece += kPiece) {
      const size_t size = std::min(all - piece, kPiece);
      const std::span<uint32_t> piece_numbers = std::span(numbers).first(size);
      Unpack<Document>(order.subspan(piece), piece_numbers, lengths);
      for (size_t i = 0; i < size; ++i) {
        const Place place = static_cast<Place>(piece + i);
        const uint64_t tokens_after = tokens + static_cast<uint64_t>(lengths[i]);
        // Most documents begin no sample or one. Which of the two cannot be foreseen, so it must not be a branch.
        begins[count] = {place, static_cast<Place>(begin_of_next - tokens)};
        const bool begins_here = begin_of_next < tokens_after;
        count += begins_here;
        begin_of_next += begins_here ? plan_.sequence_length : 0;
        while (begin_of_next < tokens_after || count == kPiece) {
          if (count == kPiece) {
            CAIRN_RETURN_IF_ERROR(sample_index.Append(std::span<const std::array<Place, 2>>(begins).first(count)));
            count = 0;
            continue;
          }
          begins[count++] = {place, static_cast<Place>(begin_of_next - tokens)};
          begin_of_next += plan_.sequence_length;
        }
        tokens = tokens_after;
      }
      CAIRN_RETURN_IF_ERROR(document_index.Append(std::span<const uint32_t>(piece_numbers)));
      done_ += size;
      if (stop_.load()) return Interrupted();
    }
    CAIRN_RETURN_IF_ERROR(sample_index.Append(std::span<const std::array<Place, 2>>(begins).first(count)));
    CAIRN_RETURN_IF_ERROR(document_index.Finish());
    CAIRN_RETURN_IF_ERROR(sample_index.Finish());
    arrays_.push_back(std::move(document_index));
    arrays_.push_back(std::move(sample_index));
    return absl::OkStatus();
  }

  template <typename Number>
  absl::Status WriteShuffle() {
    const std::span<Number> order = Numbers<Number>(plan_.samples);
    std::iota(order.begin(), order.end(), Number{0});
    if (!random_.Shuffle(order.first(plan_.samples_shuffled_first), stop_, &done_)) return Interrupted();
    if (!random_.Shuffle(order.subspan(plan_.samples_shuffled_first), stop_, &done_)) return Interrupted();
    CAIRN_ASSIGN_OR_RETURN(NpyFile shuffle_index, CreateArray("shuffle_index"));
    CAIRN_RETURN_IF_ERROR(shuffle_index.Append(std::span<const Number>(order)));
    CAIRN_RETURN_IF_ERROR(shuffle_index.Finish());
    arrays_.push_back(std::move(shuffle_index));
    return absl::OkStatus();
  }

  const GptDatasetPlan& plan_;
  const std::span<const int32_t> lengths_;
  RandomState random_;
  const CacheFiles& files_;
  const std::atomic<bool>& stop_;
  std::atomic<uint64_t>& done_;
  const RawMemory memory_;
  std::vector<NpyFile> arrays_;
};

}  // namespace

std::map<std::string, NpyHeader> GptDatasetPlan::Headers() const {
  return {{"document_index", {"<i4", {epochs * documents}}},
          {"sample_index", {PlacesNeed64Bits(*this) ? "<i8" : "<i4", {samples + 1, 2}}},
          {"shuffle_index", {SamplesNeed64Bits(*this) ? "<i8" : "<u4", {samples}}}};
}

uint64_t GptDatasetPlan::array_bytes() const {
  return std::max((LengthsTravel(*this) ? 8 : 4) * epochs * documents, (SamplesNeed64Bits(*this) ? 8 : 4) * samples);
}

absl::StatusOr<GptDatasetPlan> PlanGptDataset(const SplitSize& split, std::optional<uint64_t> samples,
                                              uint32_t sequence_length, uint64_t memory) {
  const uint64_t tokens = split.tokens;
  if (tokens < 2) {
    return MakeError(Reason::kBadRequest, absl::StrCat("its ", split.sequences, " sequences have ", tokens, " tokens"),
                     {{"next", "Give this split a larger share by --split, or leave the dataset out."}});
  }
  if (samples.value_or(0) >= kMostTokens / sequence_length) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat(*samples, " samples of ", sequence_length, " tokens are too many"));
  }
  GptDatasetPlan plan;
  plan.first_document = split.first;
  plan.documents = split.sequences;
  plan.sequence_length = sequence_length;
  const uint64_t needed = samples.has_value() ? *samples * sequence_length + kExtraToken : 1;
  plan.epochs = std::max<uint64_t>(1, (needed + tokens - 1) / tokens);
  plan.samples = (plan.epochs * tokens - kExtraToken) / sequence_length;
  plan.samples_shuffled_first = plan.samples;
  if (plan.epochs > 1) {
    constexpr double kThreshold = 0.80;
    const uint64_t before_last = ((plan.epochs - 1) * tokens - kExtraToken) / sequence_length;
    const uint64_t per_epoch = (tokens - kExtraToken) / sequence_length;
    plan.last_epoch_is_separate =
        *samples - before_last < static_cast<uint64_t>(kThreshold * static_cast<double>(per_epoch));
    if (plan.last_epoch_is_separate) plan.samples_shuffled_first = before_last;
  }
  const bool fits = plan.documents <= memory / plan.epochs && plan.memory_bytes() <= memory;
  if (!fits) {
    return MakeError(Reason::kMemoryLimit,
                     absl::StrCat("its indices for ", plan.epochs, " epochs of ", plan.documents, " documents and ",
                                  plan.samples, " samples do not fit in ", memory >> 20, " MiB of memory"),
                     {{"next", "Raise --memory, use a machine with more memory, or ask for fewer samples."}});
  }
  return plan;
}

absl::Status BuildGptDataset(const GptDatasetPlan& plan, std::span<const int32_t> lengths, uint32_t seed,
                             const CacheFiles& files, const std::atomic<bool>& stop, std::atomic<uint64_t>& done) {
  return WithMemory("for the indices of a dataset",
                    [&] { return Builder(plan, lengths, seed, files, stop, done).Run(); });
}

}  // namespace cairn::corpus
