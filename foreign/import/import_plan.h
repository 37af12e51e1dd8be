// Plans an import: the tensors and values of another program's checkpoint, and the bins that will hold them.
#ifndef CAIRN_FOREIGN_IMPORT_IMPORT_PLAN_H_
#define CAIRN_FOREIGN_IMPORT_IMPORT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/plan.pb.h"
#include "common/format/manifest.h"
#include "common/format/stored_item.h"
#include "foreign/tensors/item_reader.h"
#include "foreign/tensors/whole_tensors.h"
#include "planner/save/save_plan.h"

namespace cairn {

// A value that is no tensor.
struct ImportObject {
  uint32_t source = 0;  // index into the objects of the source's manifest
  uint64_t bytes = 0;   // as Cairn stores it
  // True if some part of it is stored only as a description, because it is an object of a class that Cairn does not
  // build.
  bool opaque = false;
};

// The part of the checkpoint that one rank would have saved.
struct ImportRank {
  std::vector<uint32_t> objects;  // indices into ImportPlan::objects, by name
  std::vector<StoredItem> items;  // the tensors (rank 0 has all of them), then the objects
  v1::WritePlan part;             // its files name items by their numbers
};

struct ImportPlan {
  std::vector<WholeTensor> tensors;                          // by name
  std::vector<ImportObject> objects;                         // by name and rank
  std::vector<std::pair<std::string, std::string>> aliases;  // name and target, by name
  SavePlan save;
  std::vector<ImportRank> ranks;

  uint64_t tensor_bytes = 0;
};

// Plans a checkpoint in which rank 0 holds every tensor whole. It uses MakeSavePlan, so the rules for names, shapes and
// bins are those of a save. The checkpoint has one rank, or as many ranks as have values of their own in the source.
// Each value is read once here, to find out its length. Without a mapping, second names stay second names; with one
// they are names like others. INVALID_ARGUMENT (BAD_REQUEST): nothing is left to import. Else as ChooseTensors,
// MakeSavePlan, EncodeTorchValue and ItemReader.
absl::StatusOr<ImportPlan> MakeImportPlan(const Manifest& source, const TensorChoice& choice, ItemReader& reader);

// Returns the bytes in which Cairn stores a value of the source. Fails as ItemReader and EncodeTorchValue do.
absl::StatusOr<std::string> ReadImportedObject(const Manifest& source, uint32_t object, ItemReader& reader);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_IMPORT_IMPORT_PLAN_H_
