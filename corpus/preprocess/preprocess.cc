#include "corpus/preprocess/preprocess.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/io/bad_lines.h"
#include "corpus/io/open_source.h"
#include "corpus/io/ordered_work.h"
#include "corpus/io/output_file.h"
#include "corpus/preprocess/line_batches.h"
#include "corpus/preprocess/partitioned_writer.h"

namespace cairn::corpus {
namespace {

// Each worker may be this many batches ahead of the writer.
constexpr uint64_t kBatchesPerWorker = 3;

struct EncodedBatch {
  size_t file = 0;
  uint64_t input_bytes = 0;
  std::vector<EncodedDocuments> keys;
  BadLines bad;
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
  if (!options.modes_key.empty() && options.new_splitter) {
    return MakeError(Reason::kBadRequest, "texts with modes cannot be split into sentences",
                     {{"next", "Leave --split-sentences or --modes-key out."}});
  }
  if (seen.contains(options.modes_key)) {
    return MakeError(Reason::kBadRequest, absl::StrCat("the key '", options.modes_key, "' is of texts and of modes"));
  }
  return absl::OkStatus();
}

absl::Status EncodeBatch(const LineBatch& batch, const std::string& file, bool skip_bad_lines, DocumentEncoder& encoder,
                         EncodedBatch& out) {
  uint64_t line_number = batch.first_line;
  return ForEachLine(batch.text(), [&](std::string_view line) {
    absl::Status status = encoder.Encode(line, out.keys);
    if (skip_bad_lines && HasReason(status, Reason::kBadJsonLine)) {
      out.bad.Add(line_number, status);
      status = absl::OkStatus();
    }
    if (!status.ok()) {
      status = Annotate(status, absl::StrCat(file, ": line ", line_number),
                        {{"file", file}, {"line", std::to_string(line_number)}});
    }
    ++line_number;
    return status;
  });
}

// Gives the files of the output their names: all, or none.
absl::Status Finish(const std::vector<std::unique_ptr<PartitionedWriter>>& writers, OutputFile* bad_lines,
                    const PreprocessOptions& options) {
  std::vector<std::string> done;
  absl::Status status;
  if (bad_lines != nullptr) {
    CAIRN_RETURN_IF_ERROR(bad_lines->Commit());
    done.push_back(BadLinesPath(options));
  }
  for (size_t i = 0; i < writers.size() && status.ok(); ++i) {
    status = writers[i]->Finish();
    const std::string prefix = PrefixOfKey(options, options.keys[i]);
    done.insert(done.end(), {IdxPath(prefix), BinPath(prefix)});
  }
  // The pairs of other keys are whole, but the call as a whole has failed.
  if (!status.ok()) RemoveReplaced(std::span(done)).IgnoreError();  // the failure is told already
  return status;
}

}  // namespace

absl::StatusOr<uint64_t> LineToCut(const RangedInput& input, uint64_t offset) {
  return FirstLineFrom(input, offset, '\n', true);
}

std::string BadLinesPath(const PreprocessOptions& options) { return options.output_prefix + "_bad_lines.log"; }

std::string PrefixOfKey(const PreprocessOptions& options, const std::string& key) {
  return absl::StrCat(options.output_prefix, "_", key, options.new_splitter ? "_sentence" : "_document");
}

absl::StatusOr<PreprocessReport> Preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                                            const Framing& framing) {
  CAIRN_RETURN_IF_ERROR(Check(options));
  const bool multimodal = !options.modes_key.empty();
  const IndexedDtype dtype = multimodal ? IndexedDtype::kInt32 : OptimalIndexedDtype(tokenizer.vocab_size());
  PreprocessReport report;
  std::vector<std::unique_ptr<PartitionedWriter>> writers;
  for (const std::string& key : options.keys) {
    PreprocessedKey info{.key = key, .prefix = PrefixOfKey(options, key)};
    info.dtype = IndexedDtypeName(dtype);
    const int partitions = options.keep_sequential ? 1 : options.partitions;
    CAIRN_ASSIGN_OR_RETURN(auto writer, PartitionedWriter::Create(info.prefix, {dtype, multimodal}, partitions));
    writers.push_back(std::move(writer));
    report.keys.push_back(std::move(info));
  }

  std::unique_ptr<OutputFile> bad_lines;
  if (options.skip_bad_lines) {
    CAIRN_ASSIGN_OR_RETURN(bad_lines, OutputFile::Create(BadLinesPath(options), {.stop = options.interrupted}));
  }

  std::vector<std::unique_ptr<DocumentEncoder>> encoders;
  encoders.reserve(static_cast<size_t>(options.workers));
  for (int i = 0; i < options.workers; ++i) {
    encoders.push_back(std::make_unique<DocumentEncoder>(
        options.keys, tokenizer, framing, options.new_splitter ? options.new_splitter() : nullptr, options.modes_key));
  }

  LineBatches::Options reading = {
      .batch_bytes = options.batch_bytes, .max_line = options.max_line, .skip_long = options.skip_bad_lines};
  // This reads through the page cache, so the kernel reads ahead while the workers encode.
  reading.source = {.direct = false,
                    .stop = options.interrupted,
                    .file_bytes = options.file_bytes,
                    .columns = options.keys,
                    .table_readers = TableReadersFor(options.workers)};
  if (multimodal) reading.source.columns.push_back(options.modes_key);
  LineBatches batches(options.inputs, reading);
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
    EncodedBatch out{batch.file, batch.size, std::vector<EncodedDocuments>(options.keys.size()), {}};
    if (batch.too_long) out.bad.Add(batch.first_line, batches.TooLong());
    CAIRN_RETURN_IF_ERROR(EncodeBatch(batch, batches.files()[batch.file].name(), options.skip_bad_lines,
                                      *encoders[static_cast<size_t>(thread)], out));
    batch.buffer.Reserve(options.batch_bytes, 0);  // that of a long line would stay until this thread's next batch
    return out;
  };
  steps.deliver = [&](EncodedBatch batch) -> absl::Status {
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(writers[i]->Add(progress.documents, batch.keys[i]));
      progress.tokens += batch.keys[i].ids.size();
    }
    progress.documents += batch.keys[0].document_sequences.size();
    report.input_bytes += batch.input_bytes;
    if (batch.bad.size() > 0) {
      progress.bad_lines += batch.bad.size();
      CAIRN_RETURN_IF_ERROR(batch.bad.Write(batches.files()[batch.file].name(), *bad_lines));
    }
    if (options.progress) options.progress(progress);
    return absl::OkStatus();
  };
  const auto window = kBatchesPerWorker * static_cast<uint64_t>(options.workers) * options.batch_bytes;
  CAIRN_RETURN_IF_ERROR((OrderedWork<LineBatch, EncodedBatch>(options.workers, window, std::move(steps)).Run()));

  CAIRN_RETURN_IF_ERROR(Finish(writers, bad_lines.get(), options));
  for (size_t i = 0; i < writers.size(); ++i) {
    const IndexedWriter& writer = writers[i]->writer();
    report.keys[i].documents = writer.documents();
    report.keys[i].sequences = writer.sequences();
    report.keys[i].tokens = writer.tokens();
  }
  report.documents = progress.documents;
  report.bad_lines = progress.bad_lines;
  return report;
}

}  // namespace cairn::corpus
