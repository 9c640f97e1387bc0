import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Flink SQL in streaming mode, in this JVM: what it says of its tables' changes.
 *
 * <p>{@code java -cp 'JARS/*' FlinkChangelog.java KEY=VALUE...}; then a statement per line on stdin. Each change that the last one gives
 * is a JSON line: its kind (+I, -U, +U, -D), then the columns.
 */
public final class FlinkChangelog {
    public static void main(String[] settings) throws Exception {
        Configuration configuration = new Configuration();
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            configuration.setString(setting.substring(0, equals), setting.substring(equals + 1));
        }
        TableEnvironment environment = TableEnvironment.create(
                EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        TableResult result = null;
        List<String> statements = new BufferedReader(new InputStreamReader(System.in)).lines().toList();
        for (String statement : statements) {
            result = environment.executeSql(statement);
        }
        ObjectMapper mapper = new ObjectMapper();
        try (CloseableIterator<Row> changes = result.collect()) {
            while (changes.hasNext()) {
                Row row = changes.next();
                Object[] told = new Object[row.getArity() + 1];
                told[0] = row.getKind().shortString();
                for (int i = 0; i < row.getArity(); i++) {
                    told[i + 1] = row.getField(i);
                }
                System.out.println(mapper.writeValueAsString(told));
            }
        }
    }
}
