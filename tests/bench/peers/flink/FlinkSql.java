import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.executiongraph.AccessExecutionJobVertex;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/**
 * Flink SQL in batch mode on a Flink in this JVM, which stays between jobs.
 *
 * <p>{@code java -cp 'JARS/*' FlinkSql.java KEY=VALUE...}; then a JSON object with "statements" per line on stdin. Each answer is a JSON
 * line with the messages that the last statement's sources have read, as Flink itself counted them.
 */
public final class FlinkSql {
    public static void main(String[] settings) throws Exception {
        Configuration configuration = new Configuration();
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            configuration.setString(setting.substring(0, equals), setting.substring(equals + 1));
        }
        MiniClusterConfiguration one =
                new MiniClusterConfiguration.Builder().setConfiguration(configuration).setNumTaskManagers(1).build();
        try (MiniCluster cluster = new MiniCluster(one)) {
            cluster.start();
            configuration.setString("execution.target", "remote");
            configuration.setString("rest.address", "127.0.0.1");
            configuration.setString("rest.port", String.valueOf(cluster.getRestAddress().get().getPort()));
            serve(cluster, TableEnvironment.create(
                    EnvironmentSettings.newInstance().inBatchMode().withConfiguration(configuration).build()));
        }
    }

    private static void serve(MiniCluster cluster, TableEnvironment environment) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("{\"ready\": true}");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            TableResult result = null;
            for (JsonNode statement : mapper.readTree(line).get("statements")) {
                result = environment.executeSql(statement.asText());
            }
            result.await();
            System.out.println(mapper.writeValueAsString(Map.of("rows", read(cluster, result.getJobClient().get().getJobID()))));
        }
    }

    /** What enters the first vertex, the source's: its messages. A sink that commits has vertices of its own behind it. */
    private static long read(MiniCluster cluster, JobID job) throws Exception {
        long records = 0;
        AccessExecutionJobVertex source = cluster.getArchivedExecutionGraph(job).get().getVerticesTopologically().iterator().next();
        for (AccessExecutionVertex task : source.getTaskVertices()) {
            records += task.getCurrentExecutionAttempt().getIOMetrics().getNumRecordsIn();
        }
        return records;
    }
}
