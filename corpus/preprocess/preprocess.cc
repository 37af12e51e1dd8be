#include "corpus/preprocess/preprocess.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/io/ordered_work.h"
#include "corpus/io/output_file.h"
#include "corpus/preprocess/line_batches.h"
#include "corpus/preprocess/partitioned_writer.h"

namespace cairn::corpus {
namespace {

// Each worker may be this many batches ahead of the writer.
constexpr uint64_t kBatchesPerWorker = 3;

struct EncodedBatch {
  uint64_t documents_before = 0;
  uint64_t input_bytes = 0;
  std::vector<EncodedDocuments> keys;
};

absl::Status Check(const PreprocessOptions& options) {
  if (options.workers < 1 || options.partitions < 1) {
    return MakeError(Reason::kBadRequest, absl::StrCat(options.workers, " workers and ", options.partitions,
                                                       " partitions: both must be at least 1"));
  }
  if (options.keys.empty()) return MakeError(Reason::kBadRequest, "no JSON key was given");
  std::set<std::string> seen;
  for (const std::string& key : options.keys) {
    if (key.find('/') != std::string::npos) {
      return MakeError(Reason::kBadRequest, absl::StrCat("the key '", key, "' cannot be part of a file name"));
    }
    if (!seen.insert(key).second)
      return MakeError(Reason::kBadRequest, absl::StrCat("the key '", key, "' was given twice"));
  }
  return absl::OkStatus();
}

absl::Status EncodeBatch(const LineBatch& batch, const std::string& file, DocumentEncoder& encoder, EncodedBatch& out) {
  uint64_t line_number = batch.first_line;
  return ForEachLine(batch.text(), [&](std::string_view line) {
    absl::Status status = encoder.Encode(line, out.keys);
    if (!status.ok()) {
      status = Annotate(status, absl::StrCat(file, ": line ", line_number),
                        {{"file", file}, {"line", std::to_string(line_number)}});
    }
    ++line_number;
    return status;
  });
}

}  // namespace

std::string PrefixOfKey(const PreprocessOptions& options, const std::string& key) {
  return absl::StrCat(options.output_prefix, "_", key, options.new_splitter ? "_sentence" : "_document");
}

absl::StatusOr<PreprocessReport> Preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                                            const Framing& framing) {
  CAIRN_RETURN_IF_ERROR(Check(options));
  const IndexedDtype dtype = OptimalIndexedDtype(tokenizer.vocab_size());
  PreprocessReport report;
  std::vector<std::unique_ptr<PartitionedWriter>> writers;
  for (const std::string& key : options.keys) {
    PreprocessedKey info{.key = key, .prefix = PrefixOfKey(options, key)};
    info.dtype = IndexedDtypeName(dtype);
    const int partitions = options.keep_sequential ? 1 : options.partitions;
    CAIRN_ASSIGN_OR_RETURN(auto writer, PartitionedWriter::Create(info.prefix, dtype, partitions));
    writers.push_back(std::move(writer));
    report.keys.push_back(std::move(info));
  }

  std::vector<std::unique_ptr<DocumentEncoder>> encoders;
  for (int i = 0; i < options.workers; ++i) {
    encoders.push_back(std::make_unique<DocumentEncoder>(options.keys, tokenizer, framing,
                                                         options.new_splitter ? options.new_splitter() : nullptr));
  }

  LineBatches batches(options.inputs, options.batch_bytes, options.max_line, options.interrupted);
  PreprocessProgress progress;
  OrderedSteps<LineBatch, EncodedBatch> steps;
  steps.next = [&](LineBatch& batch) -> absl::StatusOr<bool> {
    if (options.interrupted != nullptr && options.interrupted->load(std::memory_order_relaxed)) {
      return MakeError(Reason::kInterrupted, "interrupted; nothing was written");
    }
    return batches.Next(batch);
  };
  steps.cost = [&](const LineBatch& batch) { return std::max<uint64_t>(batch.size, options.batch_bytes); };
  steps.work = [&](int thread, LineBatch& batch) -> absl::StatusOr<EncodedBatch> {
    EncodedBatch out{batch.lines_before, batch.size, std::vector<EncodedDocuments>(options.keys.size())};
    CAIRN_RETURN_IF_ERROR(EncodeBatch(batch, batches.files()[batch.file], *encoders[static_cast<size_t>(thread)], out));
    batch.buffer.Reserve(options.batch_bytes, 0);  // that of a long line would stay until this thread's next batch
    return out;
  };
  steps.deliver = [&](EncodedBatch batch) -> absl::Status {
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(writers[i]->Add(batch.documents_before, batch.keys[i]));
      progress.tokens += batch.keys[i].ids.size();
    }
    progress.documents += batch.keys[0].document_sequences.size();
    progress.input_bytes += batch.input_bytes;
    if (options.progress) options.progress(progress);
    return absl::OkStatus();
  };
  const auto window = kBatchesPerWorker * static_cast<uint64_t>(options.workers) * options.batch_bytes;
  CAIRN_RETURN_IF_ERROR((OrderedWork<LineBatch, EncodedBatch>(options.workers, window, std::move(steps)).Run()));

  for (size_t i = 0; i < writers.size(); ++i) {
    absl::Status status = writers[i]->Finish();
    if (!status.ok()) {
      // The pairs of other keys are whole, but the call as a whole has failed, so they are removed.
      for (size_t done = 0; done < i; ++done) {
        const std::string& prefix = report.keys[done].prefix;
        RemoveReplaced({{IdxPath(prefix), BinPath(prefix)}}).IgnoreError();  // the failure is told already
      }
      return status;
    }
    const IndexedWriter& writer = writers[i]->writer();
    report.keys[i].documents = writer.documents();
    report.keys[i].sequences = writer.sequences();
    report.keys[i].tokens = writer.tokens();
  }
  report.documents = progress.documents;
  report.input_bytes = progress.input_bytes;
  return report;
}

}  // namespace cairn::corpus
