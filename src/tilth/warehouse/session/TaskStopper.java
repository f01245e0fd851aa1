import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSetManager;

/**
 * Ends what goes on after it was cancelled, because its loop looks at no interrupt: an error is thrown in its thread, as
 * Thread.stop did. Compiled by the compiler that Spark uses for generated code, which knows no generics;
 * when it is asked: worker/lingering.py.
 *
 * Covers: Spark's tasks in this process whose stage has ended; calls into Spark by threads with given names, as the
 * parser and the optimizer. Does not cover: tasks in executors of a cluster, Java 20 and later, which cannot do it.
 * Always holds: a thread is stopped only while it computes, and a task only while it holds no lock: neither what other
 * tasks share nor a class that is being loaded stays half changed.
 */
public class TaskStopper {
    private static final Pattern TASK = Pattern.compile("Executor task launch worker for .*\\(TID (\\d+)\\)");
    /** Frames below which a thread computes for its task or its call, and nothing is cleaned up yet. */
    private static final Set COMPUTING = new HashSet(Arrays.asList(new Object[] {
        "org.apache.spark.scheduler.ResultTask.runTask", "org.apache.spark.scheduler.ShuffleMapTask.runTask", "py4j.Gateway.invoke"
    }));
    private static final Set LOADING = new HashSet(Arrays.asList(new Object[] {"<clinit>", "loadClass", "defineClass"}));

    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    private final Method stop = stopMethod();
    /** Nanoseconds at which a task was first seen to outlive its stage, by its id. */
    private Map since = new HashMap();

    private static Method stopMethod() {
        try {
            Method found = Thread.class.getDeclaredMethod("stop0", new Class[] {Object.class});
            found.setAccessible(true);
            return found;
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    /**
     * Stop the tasks that have outlived their stage for so many seconds, and the calls of the threads with these names,
     * one a line. Returns a line for each thread that was stopped: its name, a tab, its top frame.
     */
    public String stop(SparkContext context, String names, double seconds) {
        StringBuilder stopped = new StringBuilder();
        if (stop == null) return "";
        Set calls = new HashSet(Arrays.asList((Object[]) names.split("\n")));
        Map before = since;
        since = new HashMap();
        Set outliving = outlivingTasks(context);
        Thread[] live = liveThreads();
        for (int i = 0; i < live.length; i++) {
            Thread thread = live[i];
            Matcher task = TASK.matcher(thread.getName());
            boolean isTask = task.matches();
            if (isTask ? hasOutlived(outliving, task.group(1), before, seconds) : calls.contains(thread.getName())) {
                String frame = stopped(thread, isTask);
                if (frame != null) stopped.append(thread.getName()).append('\t').append(frame).append('\n');
            }
        }
        return stopped.toString();
    }

    /** Return the ids of the running tasks, those in executors too, whose stage has ended, with commas between. */
    public String outliving(SparkContext context) {
        StringBuilder ids = new StringBuilder();
        Iterator tasks = outlivingTasks(context).iterator();
        while (tasks.hasNext()) ids.append(ids.length() == 0 ? "" : ",").append(tasks.next());
        return ids.toString();
    }

    private static Set outlivingTasks(SparkContext context) {
        Set ids = new HashSet();
        Object scheduler = context.taskScheduler();
        if (!(scheduler instanceof TaskSchedulerImpl)) return ids;
        Set active = new HashSet();
        int[] stages = context.statusTracker().getActiveStageIds();
        for (int i = 0; i < stages.length; i++) active.add(Integer.valueOf(stages[i]));
        Iterator tasks = ((TaskSchedulerImpl) scheduler).taskIdToTaskSetManager().entrySet().iterator();
        while (tasks.hasNext()) {
            Map.Entry task = (Map.Entry) tasks.next();
            TaskSetManager set = (TaskSetManager) task.getValue();
            // A stage that is tried again may still use what tasks of its former attempt write.
            if (set.isZombie() && !active.contains(Integer.valueOf(set.taskSet().stageId()))) ids.add(task.getKey());
        }
        return ids;
    }

    /** Return the live threads without their stacks: to read all stacks each second, Java would stop all threads. */
    private static Thread[] liveThreads() {
        ThreadGroup root = Thread.currentThread().getThreadGroup();
        while (root.getParent() != null) root = root.getParent();
        Thread[] found = new Thread[2 * root.activeCount() + 16];
        Thread[] live = new Thread[root.enumerate(found, true)];
        System.arraycopy(found, 0, live, 0, live.length);
        return live;
    }

    private boolean hasOutlived(Set outliving, String id, Map before, double seconds) {
        if (!outliving.contains(Long.valueOf(id))) return false;
        Long first = before.containsKey(id) ? (Long) before.get(id) : Long.valueOf(System.nanoTime());
        since.put(id, first);
        return System.nanoTime() - first.longValue() >= seconds * 1e9;
    }

    /** Stop the thread where that does no harm. Returns its top frame; null: it was not stopped. */
    private String stopped(Thread thread, boolean isTask) {
        ThreadInfo[] found = threads.getThreadInfo(new long[] {thread.getId()}, isTask, false);
        if (found[0] == null || found[0].getThreadState() != Thread.State.RUNNABLE) return null;
        if (isTask && found[0].getLockedMonitors().length > 0) return null;
        StackTraceElement[] frames = found[0].getStackTrace();
        boolean isComputing = false;
        for (int i = 0; i < frames.length; i++) {
            if (LOADING.contains(frames[i].getMethodName())) return null;
            isComputing |= COMPUTING.contains(frames[i].getClassName() + "." + frames[i].getMethodName());
        }
        if (!isComputing) return null;
        try {
            // No exception: functions like try_cast make NULL of these, and go on. No fatal error: it ends the process.
            stop.invoke(thread, new Object[] {new Error("cancelled")});
        } catch (IllegalAccessException e) {
            return null;
        } catch (InvocationTargetException e) {
            return null;
        }
        return frames[0].toString();
    }
}
