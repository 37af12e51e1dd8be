// Serves MonitoringService, out of the decisions and the log of operations.
#ifndef CAIRN_COORDINATOR_SERVER_MONITORING_SERVICE_H_
#define CAIRN_COORDINATOR_SERVER_MONITORING_SERVICE_H_

#include <string>

#include "cairn/v1/monitoring_service.grpc.pb.h"
#include "coordinator/server/dispatcher.h"
#include "coordinator/server/job_reader.h"
#include "coordinator/server/operation_log.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/storage.h"

namespace cairn {

// Thread-safe.
class MonitoringService final : public v1::MonitoringService::CallbackService {
 public:
  MonitoringService(Dispatcher& dispatcher, const OperationLog& operations, Storage& storage,
                    CheckpointStore& checkpoints);

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* ListTimelines(grpc::CallbackServerContext* context, const v1::ListTimelinesRequest* request,
                                          v1::ListTimelinesResponse* response) override;

 private:
  Dispatcher& dispatcher_;
  const OperationLog& operations_;
  JobReader reader_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_MONITORING_SERVICE_H_
